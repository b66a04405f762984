// lazy: work is done for what is on the screen, and done again when it has become stale.
// What is asked to be `soon` is also done once when the browser has nothing else to do: paper shows no screen.

const panels = new WeakMap();
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) panels.get(entry.target)?.seen(entry.isIntersecting);
  },
  { rootMargin: "160px" },
);

const idle = globalThis.requestIdleCallback ?? ((work) => setTimeout(work, 200));

export class Panel {
  visible = false;
  stale = true;
  busy = false;

  /** `load` fetches and draws; it runs when `element` is on the screen and something has changed. */
  constructor(element, load) {
    this.load = load;
    panels.set(element, this);
    observer.observe(element);
  }

  seen(visible) {
    this.visible = visible;
    this.work();
  }

  soon() {
    if (this.loaded || this.early) return;
    this.early = true;
    idle(() => this.work());
  }

  invalidate() {
    this.stale = true;
    this.work();
  }

  async work() {
    if (!(this.visible || (this.early && !this.loaded)) || !this.stale || this.busy) return;
    this.stale = false;
    this.loaded = true;
    this.busy = true;
    try {
      await this.load();
    } finally {
      this.busy = false;
    }
    this.work();
  }
}
