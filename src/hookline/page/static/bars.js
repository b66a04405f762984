// bars: one column for each site at one step: the size of gradients, or how values are spread.

import { short } from "./dom.js";
import { shortened } from "./names.js";
import { Chart, drawWord, drawY, room, yAt } from "./plot.js";
import { linear, logarithmic, symmetric } from "./scales.js";

const TILT = -Math.PI / 3;

/** `data`: {names, rows: [[row of run, row of second run or nothing]], stat, label}. */
class Columns extends Chart {
  constructor(label) {
    super({
      height: 330,
      label,
      paint: (frame) => this.paintAll(frame),
      probe: (frame, x) => this.#place(Math.floor((x - frame.box?.left) / frame.step)),
      move: (frame, right, down) => this.#place((this.at ?? -1) + right + down),
    });
    this.data = { names: [], rows: [] };
  }

  show(data) {
    this.data = data;
    this.redraw();
  }

  paintAll(frame) {
    const rows = this.data.rows.flat().filter(Boolean);
    const scale = rows.length ? this.scale(rows) : null;
    frame.box = null;
    if (!scale) return drawWord(frame, this.data.word ?? "nothing is recorded at this step");
    const names = shortened(this.data.names);
    const longest = Math.min(Math.max(...names.map((name) => frame.context.measureText(name).width)), 120);
    room(frame, { left: 66, bottom: 16 + longest * Math.sin(-TILT) });
    frame.step = frame.box.width / this.data.rows.length;
    drawY(frame, scale, this.data.label);
    this.data.rows.forEach((both, place) => {
      const wide = frame.step / both.length;
      both.forEach((row, second) => {
        if (row) this.column(frame, scale, row, frame.box.left + place * frame.step + second * wide, wide, second);
      });
    });
    this.#names(frame, names);
  }

  #names(frame, names) {
    const { context, box, ink } = frame;
    const every = Math.ceil(names.length / Math.floor(box.width / 17));
    context.strokeStyle = ink.line;
    context.beginPath();
    context.moveTo(box.left, box.bottom + 0.5);
    context.lineTo(box.right, box.bottom + 0.5);
    context.stroke();
    context.fillStyle = ink.soft;
    context.textAlign = "right";
    context.textBaseline = "middle";
    names.forEach((name, place) => {
      if (place % every) return;
      context.save();
      context.translate(box.left + (place + 0.5) * frame.step, box.bottom + 8);
      context.rotate(TILT);
      context.fillText(name, 0, 0, 130);
      context.restore();
    });
  }

  #place(place) {
    if (!this.frame?.box || !this.data.rows.length) return null;
    this.at = Math.min(Math.max(place, 0), this.data.rows.length - 1);
    const both = this.data.rows[this.at];
    const told = both.map((row) => (row ? this.tell(row) : "not recorded")).join("; other run: ");
    return {
      text: `${this.data.names[this.at]}: ${told}`,
      mark: ({ context, box, ink, step }) => {
        context.strokeStyle = ink.soft;
        context.strokeRect(box.left + this.at * step, box.top, Math.max(step, 3), box.height);
      },
    };
  }
}

export class Flow extends Columns {
  scale(rows) {
    const values = rows.map((row) => row[this.data.stat]).filter((value) => value > 0);
    if (!values.length) return linear(0, 1);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return logarithmic(low / 2, Math.max(high * 1.5, low * 4));
  }

  column(frame, scale, row, x, wide, second) {
    const { context, ink, box } = frame;
    const value = row[this.data.stat];
    const gap = Math.min(wide * 0.15, 3);
    context.fillStyle = second ? ink.second : ink.accent;
    if (value > 0) {
      const y = yAt(frame, scale, value);
      context.fillRect(x + gap, y, Math.max(wide - 2 * gap, 1), box.bottom - y);
    }
    if (!value || row.nan || row.inf) {
      context.fillStyle = ink.bad;
      context.beginPath();
      context.moveTo(x + wide / 2 - 5, box.bottom - 10);
      context.lineTo(x + wide / 2 + 5, box.bottom - 10);
      context.lineTo(x + wide / 2, box.bottom - 1);
      context.fill();
    }
  }

  tell(row) {
    const bad = row.nan || row.inf ? `, ${row.nan} NaN and ${row.inf} Inf` : "";
    return `${short(row[this.data.stat])}${bad}`;
  }
}

export class Boxes extends Columns {
  scale(rows) {
    const ends = rows.flatMap((row) => (row.quantiles ? [row.quantiles[0], row.quantiles[4]] : []));
    if (!ends.length) return null;
    const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
    const sizes = ends.map(Math.abs).filter((size) => size > 0);
    const largest = Math.max(...sizes, 1e-30);
    const near = Math.min(Math.max(Math.min(...sizes, largest), largest * 1e-4), largest / 10);
    return symmetric(low * 1.2, high * 1.2 || 1, near);
  }

  column(frame, scale, row, x, wide, second) {
    const { context, ink } = frame;
    if (!row.quantiles) return;
    const [a, b, c, d, e] = row.quantiles.map((value) => yAt(frame, scale, value));
    const middle = x + wide / 2;
    const half = Math.max(Math.min(wide * 0.34, 14), 0.8);
    context.strokeStyle = context.fillStyle = second ? ink.second : ink.accent;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(middle, a);
    context.lineTo(middle, e);
    context.stroke();
    context.globalAlpha = 0.55;
    context.fillRect(middle - half, d, 2 * half, Math.max(b - d, 1));
    context.globalAlpha = 1;
    if (wide > 5) context.strokeRect(middle - half, d, 2 * half, Math.max(b - d, 1));
    context.strokeStyle = ink.text;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(middle - half, c);
    context.lineTo(middle + half, c);
    context.stroke();
    context.lineWidth = 1;
  }

  tell(row) {
    if (!row.quantiles) return "no histogram";
    const [a, b, c, d, e] = row.quantiles.map((value) => short(value, 3));
    return `median ${c}, half of the values from ${b} to ${d}, 98 % from ${a} to ${e}`;
  }
}
