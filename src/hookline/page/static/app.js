// app: what is shown: the list of runs, or a run (alone, over another, or in a report).

import { fill, h } from "./dom.js";
import { begin } from "./frame.js";
import { RunList } from "./list.js";
import { RunView } from "./run.js";
import { ReportSource, ServerSource } from "./source.js";

const embedded = document.getElementById("data");
const address = new URLSearchParams(location.search);
const asked = address.get("run");
const trail = embedded ? "Report" : asked !== null ? h("span", {}, h("a", { href: "/" }, "Runs"), " / ", asked) : "";

begin(trail, !embedded, async (main) => {
  const source = embedded ? await ReportSource.open(embedded.textContent.trim()) : new ServerSource();
  if (embedded || asked !== null) await new RunView(main, source, asked, address).start();
  else await follow(new RunList(main), source);
});

async function follow(list, source) {
  list.show(await source.list());
  let told = "";
  source.listen(
    [],
    (found) => {
      const text = JSON.stringify(found);
      if (text !== told && !list.isRead()) list.show(found);
      told = text;
    },
    (lost) => fill(document.getElementById("link"), lost ? "The server does not answer." : ""),
  );
}
