// dom: elements from plain data. Text is always text: a name with HTML in it is shown as it is.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A control with the label above it. */
export function labelled(label, control, kind = "field") {
  return h("div", { class: kind }, h("label", { for: control.id }, label), control);
}

export function select(label, options, value, change) {
  const id = `choose-${label.toLowerCase().replaceAll(/\W+/g, "-")}`;
  const field = h("select", { id, onchange: () => change(field.value) });
  for (const [key, text] of options) field.append(h("option", { value: key, selected: key === value }, text));
  return labelled(label, field);
}

const EXACT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A whole number with commas. */
export function whole(value) {
  return EXACT.format(value);
}

/** A number as a person reads it: four digits, powers of ten where they are shorter. */
export function short(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa, power] = value.toExponential(Math.max(digits - 1, 0)).split("e");
    return `${Number(mantissa)}e${Number(power)}`;
  }
  return String(Number(value.toPrecision(digits)));
}

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), 4);
  return `${(bytes / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

export function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.round(seconds / 86400)} days`;
}

export function moment(iso) {
  if (!iso) return "–";
  const options = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
  return new Date(iso).toLocaleString("en-GB", options);
}

/** Calls `work` once, soon, however often it is asked for. */
export function later(work, wait = 60) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, wait);
  };
}

/** The name of a site as it is shown; that of the model itself is empty. */
export function siteName(site, call = 0) {
  return `${site || "(model)"}${call ? ` #${call}` : ""}`;
}
