// theme: light or dark, as the system has it until somebody chooses.

const system = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set();

function stored() {
  try {
    return localStorage.getItem("hookline-theme");
  } catch {
    return null; // a report that is opened from disk may have no storage
  }
}

let chosen = stored();
const paper = matchMedia("print");

/** Whether the page is being printed: drawn at once then, and in dark ink. */
export function isPrinting() {
  return paper.matches;
}

export function isDark() {
  if (paper.matches) return false;
  return chosen ? chosen === "dark" : system.matches;
}

function apply() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  for (const watcher of watchers) watcher();
}

export function toggleTheme() {
  chosen = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("hookline-theme", chosen);
  } catch {
    // it holds for this page
  }
  apply();
}

export function onTheme(watcher) {
  watchers.add(watcher);
}

export function startTheme() {
  system.addEventListener("change", apply);
  paper.addEventListener("change", apply);
  apply();
}

/** The colours that are drawn with, as the style sheet has them. */
export function ink() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: colour("text"),
    soft: colour("soft"),
    line: colour("line"),
    grid: colour("grid"),
    panel: colour("panel"),
    accent: colour("accent"),
    second: colour("second"),
    bad: colour("error"),
    warn: colour("warning"),
    note: colour("note"),
    raised: colour("raised"),
    dark: isDark(),
  };
}
