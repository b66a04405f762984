// diff: the report of a diff, a file that opens from disk.

import { DiffView } from "./diffview.js";
import { begin } from "./frame.js";
import { unpacked } from "./packed.js";

begin("Diff", false, async (main) => {
  new DiffView(main, await unpacked(document.getElementById("data").textContent.trim())).start();
});
