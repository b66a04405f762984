// heat: the colourful dimension: the histogram of a site over the steps, bright where many values are.

import { short, whole } from "./dom.js";
import { Chart, drawWord, room } from "./plot.js";
import { palette } from "./scales.js";
import { bytesOf } from "./packed.js";

const LOW = 1e-4; // the share at which colour begins, as in queries.py

export class Heat extends Chart {
  constructor(label) {
    super({
      height: 168,
      label,
      paint: (frame) => this.#paint(frame),
      probe: (frame, x, y) => this.#probe(frame, x, y),
      move: (frame, right, down) => this.#move(right, down),
    });
    this.at = { column: 0, row: 0 };
  }

  /** `word` is what is said where there is no image. */
  show(image, word = "no finite values, or no histogram") {
    this.word = word;
    this.image = image && { ...image, bytes: bytesOf(image.pixels), columns: image.starts.length };
    this.none = !image;
    this.redraw();
  }

  #paint(frame) {
    if (!this.image) return drawWord(frame, this.none ? this.word : "…");
    const { bytes, columns, rows, starts, ends, edges } = this.image;
    const box = room(frame, { left: 50, right: 4, top: 4, bottom: 20 });
    const colour = palette(frame.ink.dark);
    const pixels = new ImageData(columns, rows);
    bytes.forEach((byte, n) => pixels.data.set([...colour[byte], 255], 4 * n));
    const small = new OffscreenCanvas(columns, rows);
    small.getContext("2d").putImageData(pixels, 0, 0);
    const { context, ink } = frame;
    context.imageSmoothingEnabled = false;
    context.drawImage(small, box.left, box.top, box.width, box.height);
    context.fillStyle = ink.bad;
    for (const column of this.image.bad) {
      const [from, to] = [column, column + 1].map((at) => Math.round(box.left + (at / columns) * box.width));
      context.fillRect(from, box.bottom - 5, Math.max(to - from, 1), 5);
    }
    context.fillStyle = ink.soft;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const row of namedRows(edges, box.height)) {
      context.fillText(short(edges[row], 2), box.left - 6, box.top + ((row + 0.5) / rows) * box.height);
    }
    context.textBaseline = "top";
    context.textAlign = "left";
    context.fillText(`step ${whole(starts[0])}`, box.left, box.bottom + 5);
    context.textAlign = "right";
    if (columns > 1) context.fillText(whole(ends.at(-1)), box.right, box.bottom + 5);
  }

  #probe(frame, x, y) {
    if (!this.image || !frame.box) return null;
    const { columns, rows } = this.image;
    const inside = (share, count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    this.at = {
      column: inside((x - frame.box.left) / frame.box.width, columns),
      row: inside((y - frame.box.top) / frame.box.height, rows),
    };
    return this.#found();
  }

  #move(right, down) {
    if (!this.image) return null;
    const kept = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.at = {
      column: kept(this.at.column + right, this.image.columns),
      row: kept(this.at.row + down, this.image.rows),
    };
    return this.#found();
  }

  #found() {
    const { bytes, columns, rows, starts, ends, edges } = this.image;
    const { column, row } = this.at;
    const steps = starts[column] === ends[column] ? "" : ` to ${whole(ends[column])}`;
    const share = shareOf(bytes[row * columns + column]);
    const bad = this.image.bad.includes(column) ? "; NaN or Inf here" : "";
    return {
      text: `step ${whole(starts[column])}${steps}, ${rangeOf(edges, row)}: ${share}${bad}`,
      mark: ({ context, ink, box }) => {
        context.strokeStyle = ink.text;
        const [w, hgt] = [box.width / columns, box.height / rows];
        context.strokeRect(box.left + column * w, box.top + row * hgt, Math.max(w, 3), Math.max(hgt, 3));
      },
    };
  }
}

/** The share of values that a byte of an image stands for. */
export function shareOf(byte) {
  if (!byte) return "none";
  const share = LOW ** (1 - (byte - 1) / 254);
  return share >= 0.0095 ? `${(100 * share).toFixed(0)} %` : `${(100 * share).toPrecision(1)} %`;
}

/** The values that a row of an image holds, in words; rows go from the largest value down. */
export function rangeOf(edges, row) {
  const edge = edges[row];
  if (edge === 0) {
    const near = edges[row - 1] ?? (edges[row + 1] === undefined ? 0 : -edges[row + 1]);
    return near ? `about 0 (within ±${short(near, 2)})` : "0";
  }
  const beyond = edges[edge > 0 ? row - 1 : row + 1];
  const from = `${short(edge, 2)}`;
  return beyond === undefined ? `${from} and beyond` : `${from} to ${short(beyond, 2)}`;
}

function namedRows(edges, height) {
  const apart = Math.max(1, Math.ceil((18 * edges.length) / height));
  const zero = edges.indexOf(0);
  const start = zero < 0 ? 0 : zero % apart;
  return edges.map((_, row) => row).filter((row) => row % apart === start);
}
