

// ---- elements and numbers -----------------------------------------------------------------------------------------

const styled = root.host ?? document.documentElement; // whose style has the colours
const $ = (id) => root.getElementById(id);
const numbers = new Intl.NumberFormat("en");
const brief = new Intl.NumberFormat("en", { notation: "compact" });
const grouped = (n) => numbers.format(n);
const counted = (n, what) => `${grouped(n)} ${what}${n === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;

const upperFirst = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

/** The noun for so many values of a key, in one column or more: "user", "users", "pairs of user and day". */
function keyNoun(keys, n) {
  if (!keys.length) return n === 1 ? "key" : "keys";
  if (keys.length > 1) return `${keys.length > 2 ? "combination" : "pair"}${n === 1 ? "" : "s"} of ${keys.slice(0, -1).join(", ")} and ${keys.at(-1)}`;
  const [name] = keys;
  if (n === 1) return name;
  if (/[^aeiou]y$/.test(name)) return `${name.slice(0, -1)}ies`;
  return name + (/(s|x|z|ch|sh)$/.test(name) ? "es" : "s");
}

/** A text with the characters escaped that move a cursor, or turn the direction of writing: \x1b, \u202e. */
function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (char) => {
    if (char === "\n" || char === "\t") return char;
    const code = char.codePointAt(0), digits = code.toString(16);
    return code < 0x100 ? `\\x${digits.padStart(2, "0")}` : code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
  });
}

/** An element that holds text or other elements; text is never read as HTML. */
function element(name, held = "", className = "") {
  const made = document.createElement(name);
  made.append(...[held].flat().map((each) => typeof each === "string" ? visible(each) : each));
  if (className) made.className = className;
  return made;
}

/** The parts of a query as nodes: comments, strings and keywords in spans. */
function highlighted(text, strategies, show = visible) {
  const words = "SELECT|NXT|NONE|FROM|LET|WHERE|PARTITION|BY|WITHIN|THEN|HAVING|EVENTS?|DAYS?|HOURS?|MINUTES?|SECONDS?|CONSUME|LIMIT|EVERY|FILTER" +
    `|AS|AND|OR|NOT|LIKE|IN|RANGE|TRUE|FALSE|${strategies.join("|")}`;
  const parts = new RegExp(`(--[^\\n]*|/\\*[^]*?\\*/)|('(?:[^']|'')*')|(\`[^\`]*\`|[A-Za-z_]\\w*)`, "g");
  const keyword = new RegExp(`^(?:${words})$`); // in lower case most could be names
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(parts)) {
    const name = found[1] ? "comment" : found[2] ? "text" : keyword.test(found[3]) ? "keyword" : "";
    if (!name) continue;
    const span = element("span", "", name);
    span.append(show(found[0]));
    nodes.push(show(text.slice(end, found.index)), span);
    end = found.index + found[0].length;
  }
  return [...nodes, show(text.slice(end))];
}

function facts(list, pairs) {
  list.replaceChildren(...pairs.map(([term, text]) => element("div", [element("dt", term), element("dd", text)])));
}

/** A number as text with its digits in groups; of four digits, which may be a year or a name, in one. */
function groupedText(text) {
  if (/\.\d{11,}$/.test(text)) text = String(+Number(text).toPrecision(12)); // digits that rounding left
  const parts = /^(-?)(\d{5,})(\.\d+)?$/.exec(text);
  return parts ? parts[1] + parts[2].replace(/\B(?=(\d{3})+$)/g, ",") + (parts[3] ?? "") : text;
}

/** A number as text: whole ones in full, others with four digits or all before the point. */
const roundedText = (value) => String(Number.isInteger(value) || Math.abs(value) >= 1000 ? Math.round(value) : +value.toPrecision(4));

/** A cell of a table: a value of a column as it is shown, null for NULL. */
function cell(value, isNumber = false) {
  return element("td", value ?? "NULL", [value === null ? "null" : "", isNumber ? "number" : ""].filter(Boolean).join(" "));
}

const colour = (name) => getComputedStyle(styled).getPropertyValue(`--${name}`).trim();

/** The first k below n for which a test, false and then true, is true. */
function search(n, test) {
  let low = 0, high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

class Heap {
  constructor(compare) {
    this.items = [];
    this.compare = compare;
  }
  get size() { return this.items.length; }
  get least() { return this.items[0]; }
  push(item) {
    const { items, compare } = this;
    let at = items.length;
    for (let up = (at - 1) >> 1; at && compare(item, items[up]) < 0; at = up, up = (at - 1) >> 1) items[at] = items[up];
    items[at] = item;
  }
  pop() {
    const { items, compare } = this;
    const least = items[0], item = items.pop();
    if (!items.length) return least;
    let at = 0;
    for (let down = 1; down < items.length; down = 2 * at + 1) {
      if (down + 1 < items.length && compare(items[down + 1], items[down]) < 0) down++;
      if (compare(items[down], item) >= 0) break;
      items[at] = items[down];
      at = down;
    }
    items[at] = item;
    return least;
  }
}
