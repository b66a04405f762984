// app: what is shown: the list of runs, or a run (alone, over another, or in a report).

import { fill, h } from "./dom.js";
import { header } from "./header.js";
import { showList } from "./list.js";
import { RunView } from "./run.js";
import { ReportSource, ServerSource } from "./source.js";
import { startTheme } from "./theme.js";

async function start() {
  startTheme();
  const page = document.getElementById("page");
  const embedded = document.getElementById("data");
  const main = h("main", { id: "top" }, h("p", { class: "wait", role: "status" }, "Reading …"));
  const address = new URLSearchParams(location.search);
  const name = address.get("run");
  const trail = embedded ? "Report" : name !== null && h("span", {}, h("a", { href: "/" }, "Runs"), " / ", name);
  fill(page, h("a", { class: "skip", href: "#top" }, "To the content"), header(trail || "", !embedded), main);
  try {
    const source = embedded ? await ReportSource.open(embedded.textContent.trim()) : new ServerSource();
    if (embedded || name !== null) await new RunView(main, source, name, address).start();
    else await list(main, source);
  } catch (error) {
    fill(main, h("div", { class: "blank", role: "alert" }, h("h1", {}, "This can't be shown"), h("p", {}, error.message)));
  }
}

async function list(main, source) {
  showList(main, await source.list());
  let told = "";
  const lost = (is) => fill(document.getElementById("link"), is ? "The server does not answer." : "");
  source.listen(
    [],
    (found) => {
      const text = JSON.stringify(found);
      if (text !== told && !main.querySelector("a:focus")) showList(main, found);
      told = text;
    },
    lost,
  );
}

start();
