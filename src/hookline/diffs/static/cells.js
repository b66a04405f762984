// cells: a tensor as a picture, in cells: the difference of two, or a value.

import { h } from "./dom.js";
import { bytesOf } from "./packed.js";
import { Chart } from "./plot.js";
import { FEW, mixed, palette, paletteStyle } from "./scales.js";
import { indexText, told, unravelled } from "./says.js";
import { isDark } from "./theme.js";

const TALLEST = 340;
const LARGEST_CELL = 26;
const PALE = 36; // the lowest colours of the palette are too near to that of the background

// As pictures.py has them.
const [SAME, SAME_BAD, LOWEST, HIGHEST, ONE_INF, ONE_NAN] = [0, 1, 2, 61, 254, 255];
const DECADES = 6;
const [MIDDLE, MINUS_INF, PLUS_INF, HAS_NAN] = [60, 253, 254, 255];
const COLD_HOT = { light: ["#1d4f91", "#8fb8de", "#f7f7f5", "#f0a58a", "#a3261c"], dark: ["#7fb2f0", "#2f5580", "#1b2229", "#84402f", "#ff9a80"] };

/** The colour that marks NaN, and that of Inf: neither is in any palette here. */
export function oddColours() {
  const few = FEW[isDark() ? "dark" : "light"];
  return { nan: few[6], inf: few[2] };
}

export function differenceStyle() {
  return paletteStyle(isDark());
}

export function valueStyle() {
  return `linear-gradient(to right, ${COLD_HOT[isDark() ? "dark" : "light"].join(", ")})`;
}

/** What is written of a map: `rows` and `columns` of the tensor laid out flat, and its cells. */
export class CellMap extends Chart {
  /** `map` as pictures.py writes it, `shape` that of the tensor; `ring` is the number that gets one, if any. */
  constructor(label, { map, shape, ring = null, signed = false }) {
    super({
      height: (width) => Math.ceil(this.#unit(width) * this.map.down) + 2,
      label,
      paint: (frame) => this.#paint(frame),
      probe: (frame, x, y) => this.#cell(Math.floor((x - 1) / frame.unit), Math.floor((y - 1) / frame.unit)),
      move: (frame, right, down) => this.#cell((this.at?.[0] ?? 0) + right, (this.at?.[1] ?? 0) + down),
    });
    Object.assign(this, { map, shape, ring, signed, codes: bytesOf(map.cells) });
    this.redraw();
  }

  #unit(width) {
    const unit = Math.min((width - 2) / this.map.across, TALLEST / this.map.down, LARGEST_CELL);
    return unit > 2 ? Math.floor(unit) : unit;
  }

  #paint(frame) {
    const { context, ink, width } = frame;
    const { across } = this.map;
    frame.unit = this.#unit(width);
    const image = new ImageData(across, this.map.down);
    const colours = this.signed ? valueColours() : differenceColours(ink);
    this.codes.forEach((code, n) => image.data.set([...colours[code], 255], 4 * n));
    const small = document.createElement("canvas");
    [small.width, small.height] = [across, this.map.down];
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 1, 1, across * frame.unit, this.map.down * frame.unit);
    context.strokeStyle = ink.line;
    context.strokeRect(0.5, 0.5, across * frame.unit + 1, this.map.down * frame.unit + 1);
    if (frame.unit >= 6) this.#crosses(frame);
    if (this.ring !== null) this.#ring(frame);
  }

  /** A cross on each cell that is no number: a colour alone does not tell it. */
  #crosses({ context, unit, ink }) {
    const odd = this.signed ? MINUS_INF : ONE_INF;
    context.strokeStyle = ink.panel;
    context.beginPath();
    this.codes.forEach((code, n) => {
      if (code < odd) return;
      const [x, y] = [1 + (n % this.map.across) * unit, 1 + Math.floor(n / this.map.across) * unit];
      context.moveTo(x + 1.5, y + 1.5);
      context.lineTo(x + unit - 1.5, y + unit - 1.5);
      context.moveTo(x + unit - 1.5, y + 1.5);
      context.lineTo(x + 1.5, y + unit - 1.5);
    });
    context.stroke();
  }

  #ring({ context, ink, unit }) {
    const { rows, columns, across } = this.map;
    const [row, column] = [Math.floor(this.ring / columns), this.ring % columns];
    const cell = (place, length, count) => Math.min(Math.floor(((place + 1) * count - 1) / length), count - 1);
    const [x, y] = [cell(column, columns, across), cell(row, rows, this.map.down)].map((at) => 1 + (at + 0.5) * unit);
    const radius = Math.max(unit * 0.75, 6);
    for (const [colour, wide] of [[ink.panel, 4], [ink.text, 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.stroke();
    }
    context.lineWidth = 1;
  }

  #cell(across, down) {
    const { rows, columns } = this.map;
    if (!this.frame?.unit || Number.isNaN(across + down)) return null;
    const [x, y] = [Math.min(Math.max(across, 0), this.map.across - 1), Math.min(Math.max(down, 0), this.map.down - 1)];
    this.at = [x, y];
    const range = (at, length, count) => [Math.floor((at * length) / count), Math.floor(((at + 1) * length) / count) - 1];
    const [left, right] = range(x, columns, this.map.across);
    const [top, bottom] = range(y, rows, this.map.down);
    const [from, to] = [[top, left], [bottom, right]].map(([row, column]) => indexText(unravelled(row * columns + column, this.shape)));
    const code = this.codes[y * this.map.across + x];
    return {
      text: `${from === to ? from : `${from} to ${to}`}: ${this.signed ? this.#value(code, from === to) : this.#difference(code, from === to)}`,
      mark: ({ context, ink, unit }) => {
        context.strokeStyle = ink.text;
        context.strokeRect(1 + x * unit, 1 + y * unit, Math.max(unit, 3), Math.max(unit, 3));
      },
    };
  }

  #difference(code, one) {
    if (code === ONE_NAN) return "NaN on one side only";
    if (code === ONE_INF) return "Inf on one side only";
    if (code === SAME_BAD) return "NaN or Inf on both sides";
    if (code === SAME) return "equal";
    const size = this.map.high * 10 ** (-DECADES * (1 - (code - LOWEST) / (HIGHEST - LOWEST)));
    return `${one ? "apart by" : "apart by up to"} about ${told(size, 2)}`;
  }

  #value(code, one) {
    if (code === HAS_NAN) return "NaN";
    if (code === PLUS_INF || code === MINUS_INF) return code === PLUS_INF ? "Inf" : "-Inf";
    return `${one ? "" : "the farthest from zero is "}about ${told((this.map.high * (code - MIDDLE)) / MIDDLE, 2)}`;
  }
}

function differenceColours(ink) {
  const colours = [];
  const shades = palette(ink.dark);
  colours[SAME] = hex(ink.raised);
  colours[SAME_BAD] = hex(ink.soft);
  for (let code = LOWEST; code <= HIGHEST; code++) colours[code] = shades[Math.round(PALE + ((255 - PALE) * (code - LOWEST)) / (HIGHEST - LOWEST))];
  const { nan, inf } = oddColours();
  colours[ONE_INF] = hex(inf);
  colours[ONE_NAN] = hex(nan);
  return colours;
}

function valueColours() {
  const stops = COLD_HOT[isDark() ? "dark" : "light"];
  const colours = Array.from({ length: 2 * MIDDLE + 1 }, (_, code) => mixed(stops, code / (2 * MIDDLE)));
  const { nan, inf } = oddColours();
  colours[MINUS_INF] = colours[PLUS_INF] = hex(inf);
  colours[HAS_NAN] = hex(nan);
  return colours;
}

function hex(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** A ramp with numbers at its ends. */
export function ramp(style, from, to, note = "") {
  const bar = h("span", { class: "ramp" });
  bar.style.background = style;
  return h("span", { class: "key" }, from, bar, `${to}${note}`);
}

export function swatch(colour, text) {
  const dot = h("span", { class: "swatch" });
  dot.style.background = colour;
  return h("span", { class: "key" }, dot, text);
}
