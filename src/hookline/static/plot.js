// plot: a canvas that is sharp, follows its width and the theme, and answers to the mouse and to arrow keys.

import { h, short } from "./dom.js";
import { ticksOf } from "./scales.js";
import { ink, isPrinting, onTheme } from "./theme.js";

export const FONT = "12px system-ui, sans-serif";
const resized = new ResizeObserver((entries) => entries.forEach((entry) => charts.get(entry.target)?.redraw()));
const charts = new WeakMap();
const all = new Set();
onTheme(() => {
  for (const reference of all) {
    const chart = reference.deref();
    if (chart && isPrinting()) chart.drawNow();
    else if (chart) chart.redraw();
    else all.delete(reference);
  }
});

export class Chart {
  #again = 0;

  /**
   * `paint(frame)` draws; `probe(frame, x, y)` gives {text, mark(frame)} for a place, and
   * `move(frame, right, down)` gives it for an arrow key; `pick()` is told that it was clicked, or Enter.
   */
  constructor({ height, label, paint, probe, move, pick }) {
    Object.assign(this, { height, paint, probe, move, pick });
    this.canvas = h("canvas", { role: "img", "aria-label": label, tabindex: probe ? "0" : null });
    this.readout = h("p", { class: "readout", "aria-live": "polite" }, "\u00a0");
    this.element = h("div", { class: "chart" }, this.canvas, probe ? this.readout : null);
    this.base = document.createElement("canvas");
    charts.set(this.canvas, this);
    all.add(new WeakRef(this));
    resized.observe(this.canvas);
    if (probe) this.#listen();
  }

  set label(text) {
    this.canvas.setAttribute("aria-label", text);
  }

  redraw() {
    cancelAnimationFrame(this.#again);
    this.#again = requestAnimationFrame(() => this.#draw());
  }

  /** Without waiting for the next frame, which does not come while a page is printed. */
  drawNow() {
    cancelAnimationFrame(this.#again);
    this.#draw();
  }

  #listen() {
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.frame) this.#show(this.probe(this.frame, event.offsetX, event.offsetY));
    });
    if (this.pick) {
      this.canvas.classList.add("picks");
      this.canvas.addEventListener("click", (event) => {
        if (!this.frame) return;
        this.#show(this.probe(this.frame, event.offsetX, event.offsetY));
        if (this.shown) this.pick();
      });
    }
    this.canvas.addEventListener("pointerleave", () => this.#show(null));
    this.canvas.addEventListener("blur", () => this.#show(null));
    this.canvas.addEventListener("keydown", (event) => {
      const [right, down] = {
        ArrowRight: [1, 0],
        ArrowLeft: [-1, 0],
        ArrowDown: [0, 1],
        ArrowUp: [0, -1],
        Home: [-1e9, 0],
        End: [1e9, 0],
      }[event.key] ?? [0, 0];
      if (event.key === "Escape") this.#show(null);
      else if (event.key === "Enter" && this.pick && this.shown) this.pick();
      else if ((right || down) && this.frame && this.move) this.#show(this.move(this.frame, right, down));
      else return;
      event.preventDefault();
    });
  }

  #show(found) {
    if (!found && !this.shown) return;
    this.shown = found;
    this.readout.textContent = found?.text ?? "\u00a0";
    this.#copy();
    found?.mark?.({ ...this.frame, context: this.canvas.getContext("2d") });
  }

  #draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    const height = typeof this.height === "function" ? this.height(width) : this.height;
    for (const canvas of [this.canvas, this.base]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    if (this.canvas.style.height !== `${height}px`) this.canvas.style.height = `${height}px`;
    const context = this.base.getContext("2d");
    context.scale(ratio, ratio);
    context.font = FONT;
    this.canvas.getContext("2d").scale(ratio, ratio);
    this.frame = { context, width, height, ink: ink(), ratio };
    this.paint(this.frame);
    this.#copy();
  }

  #copy() {
    const context = this.canvas.getContext("2d");
    context.save();
    context.resetTransform();
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.base, 0, 0);
    context.restore();
    context.font = FONT;
  }
}

/** The box that is left for data between the axes. */
export function room(frame, { left = 58, right = 12, top = 12, bottom = 36 } = {}) {
  frame.box = { left, top, right: frame.width - right, bottom: frame.height - bottom };
  frame.box.width = frame.box.right - left;
  frame.box.height = frame.box.bottom - top;
  return frame.box;
}

export function xAt(frame, scale, value) {
  return frame.box.left + scale.at(value) * frame.box.width;
}

export function yAt(frame, scale, value) {
  return frame.box.bottom - scale.at(value) * frame.box.height;
}

export function drawY(frame, scale, label, format = (value) => short(value, 3)) {
  const { context, ink: colour, box } = frame;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of ticksOf(scale, Math.max(2, Math.floor(box.height / 46)))) {
    const y = Math.round(yAt(frame, scale, tick)) + 0.5;
    context.strokeStyle = tick === 0 && scale.low < 0 ? colour.line : colour.grid;
    context.beginPath();
    context.moveTo(box.left, y);
    context.lineTo(box.right, y);
    context.stroke();
    context.fillStyle = colour.soft;
    context.fillText(format(tick), box.left - 8, y);
  }
  if (!label) return;
  context.save();
  context.translate(11, box.top + box.height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillStyle = colour.soft;
  context.fillText(label, 0, 0);
  context.restore();
}

export function drawX(frame, scale, label, format = (value) => short(value, 6)) {
  const { context, ink: colour, box } = frame;
  context.fillStyle = colour.soft;
  context.textBaseline = "top";
  context.textAlign = "center";
  for (const tick of ticksOf(scale, Math.max(2, Math.floor(box.width / 90)))) {
    const x = Math.round(xAt(frame, scale, tick)) + 0.5;
    context.strokeStyle = colour.line;
    context.beginPath();
    context.moveTo(x, box.bottom);
    context.lineTo(x, box.bottom + 4);
    context.stroke();
    context.fillText(format(tick), Math.min(x, frame.width - 16), box.bottom + 7);
  }
  context.strokeStyle = colour.line;
  context.beginPath();
  context.moveTo(box.left, box.bottom + 0.5);
  context.lineTo(box.right, box.bottom + 0.5);
  context.stroke();
  if (label) context.fillText(label, box.left + box.width / 2, box.bottom + 22);
}

/** A word where a chart would be. */
export function drawWord(frame, text) {
  const { context, ink: colour } = frame;
  context.fillStyle = colour.soft;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, frame.width / 2, frame.height / 2);
}
