
// ---- the editor: a text that is painted behind what one types, with completions -------------------------------------

const WORD_PART = /[\w.[']/; // what opens completions as it is typed

class Editor {
  /** The callbacks are changed(text), run(), and complete(text, at). */
  constructor(callbacks) {
    Object.assign(this, { ...callbacks, field: $("text"), list: $("completions"), problems: [], items: [], at: 0, isChosen: false, asked: -1 });
    const { field, list } = this;
    field.addEventListener("input", (event) => this.typed(event));
    field.addEventListener("keydown", (event) => this.pressed(event));
    field.addEventListener("blur", () => this.close());
    field.addEventListener("click", () => this.close());
    list.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
    list.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) this.accept(Number(item.dataset.at));
    });
    new ResizeObserver(() => this.fit()).observe(field);
    this.paint();
  }

  get text() { return this.field.value; }

  /** Replace the text as typing would, so that it can be undone. */
  replace(text, from = 0, to = this.text.length) {
    const { field } = this;
    field.focus();
    field.setSelectionRange(from, to);
    // the only way that keeps the undo history; where there is none, the text changes all the same
    if (!document.execCommand("insertText", false, text)) {
      field.setRangeText(text, from, to, "end");
      this.typed({});
    }
  }

  set(text) {
    this.field.value = text;
    this.typed({});
    this.close();
  }

  typed(event) {
    this.problems = []; // their places are those of another text
    this.paint();
    this.fit();
    this.showKeys();
    this.changed(this.text);
    const { selectionEnd: at } = this.field;
    if (event.inputType === "insertText" && WORD_PART.test(this.text[at - 1] ?? "")) this.ask();
    else if (!this.list.hidden && event.inputType === "deleteContentBackward" && WORD_PART.test(this.text[at - 1] ?? "")) this.ask();
    else this.close();
  }

  get hasLines() { return this.text.includes("\n"); }

  showKeys() {
    const control = /Mac|iPhone|iPad/.test(navigator.platform) ? "\u2318" : "Ctrl";
    $("keys").replaceChildren(...(this.hasLines ? [element("kbd", `${control} Enter`)] : [element("kbd", "Enter"), " or ", element("kbd", `${control} Enter`)]),
      " runs the query over all events; ", ...(this.hasLines ? [] : [element("kbd", "Shift Enter"), " begins a line; "]),
      element("kbd", "Tab"), " takes a completion, ", element("kbd", "Ctrl Space"), " shows them.");
  }

  /** Show the text in colours, with problems underlined. */
  paint() {
    const { text, problems } = this;
    const edges = new Set([0, text.length]);
    for (const { start, end } of problems) edges.add(start).add(Math.max(end, start + 1));
    const nodes = highlighted(text, STRATEGIES, String);
    const painted = [];
    let from = 0;
    for (const node of nodes) { // each part of the text is cut where a problem begins or ends
      const part = typeof node === "string" ? node : node.textContent, to = from + part.length;
      const cuts = [...edges].filter((edge) => edge > from && edge < to).sort((a, b) => a - b);
      [from, ...cuts].forEach((begin, k) => {
        const end = cuts[k] ?? to;
        const found = problems.find((each) => each.start < end && Math.max(each.end, each.start + 1) > begin);
        const names = [typeof node === "string" ? "" : node.className, found && (found.is_warning ? "doubtful" : "wrong")].filter(Boolean);
        const span = document.createElement("span");
        span.textContent = text.slice(begin, end);
        span.className = names.join(" ");
        painted.push(span);
      });
      from = to;
    }
    const atEnd = problems.some((each) => each.start >= text.length);
    const last = document.createElement("span");
    last.textContent = atEnd ? "\u00a0\n" : "\n"; // a line that ends the text has a height, too
    if (atEnd) last.className = "wrong";
    $("paint").replaceChildren(...painted, last);
  }

  /** Give the field the height of its text. */
  fit() {
    const { field } = this;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  }

  show(problems) {
    this.problems = problems;
    this.paint();
    $("problems").replaceChildren(...problems.map(({ message, start, end, is_warning: isWarning }) => {
      const button = element("button", message);
      button.type = "button";
      button.addEventListener("click", () => {
        this.field.focus();
        this.field.setSelectionRange(start, Math.max(end, start));
      });
      return element("li", button, isWarning ? "doubtful" : "");
    }));
    this.field.setAttribute("aria-invalid", String(problems.some((each) => !each.is_warning)));
  }

  // ---- completions

  ask() {
    const { selectionEnd: at } = this.field;
    this.asked = at;
    this.complete(this.text, at);
  }

  /** Offer completions of the word from a place to the cursor. */
  offer({ at, from, items }) {
    if (at !== this.asked || this.field.selectionEnd !== at || root.activeElement !== this.field) return;
    const begun = this.text.slice(from, at);
    const isDone = items.length === 1 && items[0][0] === begun;
    if (!items.length || isDone) return this.close();
    Object.assign(this, { items, from, at: 0, isChosen: false });
    this.list.replaceChildren(...items.map(([text, kind, detail], k) => {
      const item = element("li", [element("span", text), element("span", detail || kind)]);
      item.id = `completion-${k}`;
      item.dataset.at = k;
      item.role = "option";
      return item;
    }));
    this.list.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    this.place(from);
    this.mark(0, false);
  }

  /** Put the list below a place of the text. */
  place(from) {
    const range = document.createRange(), paint = $("paint");
    let left = from, node = null;
    for (const span of paint.children) {
      if (!span.firstChild) continue; // an empty part
      node = span.firstChild;
      if (left <= node.length) break;
      left -= node.length;
    }
    if (!node) return;
    range.setStart(node, Math.min(left, node.length));
    range.collapse(true);
    const box = range.getClientRects()[0] ?? range.getBoundingClientRect(), own = paint.getBoundingClientRect();
    this.list.style.left = `${Math.max(0, Math.min(box.left - own.left, own.width - this.list.offsetWidth))}px`;
    this.list.style.top = `${box.bottom - own.top + 4}px`;
  }

  mark(at, isChosen = true) {
    const n = this.items.length;
    this.at = (at + n) % n;
    this.isChosen = isChosen;
    [...this.list.children].forEach((item, k) => { item.ariaSelected = String(k === this.at); });
    const item = this.list.children[this.at];
    this.field.setAttribute("aria-activedescendant", item.id);
    item.scrollIntoView({ block: "nearest" });
  }

  close() {
    this.asked = -1;
    if (this.list.hidden) return;
    this.list.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }

  accept(at = this.at) {
    const [text] = this.items[at];
    this.close();
    this.replace(text, this.from, this.field.selectionEnd);
    this.close();
  }

  pressed(event) {
    const isOpen = !this.list.hidden, isControl = event.ctrlKey || event.metaKey;
    const does = isOpen && !isControl && {
      ArrowDown: () => this.mark(this.at + 1), ArrowUp: () => this.mark(this.at - 1),
      PageDown: () => this.mark(Math.min(this.at + 8, this.items.length - 1)), PageUp: () => this.mark(Math.max(this.at - 8, 0)),
      Escape: () => this.close(), Tab: () => this.accept(), Enter: this.isChosen && (() => this.accept()),
    }[event.key];
    if (event.key === "Escape") this.asked = -1; // of completions that are on their way
    if (does) does();
    else if (event.key === " " && event.ctrlKey) this.ask();
    else if (event.key === "Enter" && (isControl || !(this.hasLines || event.shiftKey || event.isComposing))) {
      this.close();
      this.run();
    } else if (event.key === "Enter" && !event.isComposing) {
      this.replace("\n", this.field.selectionStart, this.field.selectionEnd); // JupyterLab allows no other way
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
