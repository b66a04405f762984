"""What is drawn on a page, and the address of a view."""

import time

COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


def drawn(locator, least=8):
    """Waits until a canvas shows more than an empty frame."""
    locator.scroll_into_view_if_needed()
    for _ in range(100):
        if locator.evaluate(COLOURS) >= least:
            return
        time.sleep(0.1)
    raise AssertionError("nothing is drawn")


def at(server, **query):
    return server.url + "".join(f"&{name}={value}" for name, value in query.items())
