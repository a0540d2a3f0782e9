
// ---- time zones ---------------------------------------------------------------------------------------------------

const ZONE_STEP = 15 * 60000; // offsets change at multiples of it alone

/** A time zone by its name, such as Europe/Paris or +02:00, and how far its clocks are ahead of UTC. */
class Zone {
  static #cached = new Map();

  /** The zone of a name, or null: there is none, it is UTC, or the browser does not know it. */
  static of(name) {
    if (!name || /^(UTC|GMT|Etc\/UTC|Etc\/GMT|Z|[+-]00:?00)$/.test(name)) return null;
    if (!Zone.#cached.has(name)) {
      let made = null;
      try {
        made = new Zone(name);
      } catch {
        // RangeError: there is no such zone
      }
      Zone.#cached.set(name, made);
    }
    return Zone.#cached.get(name);
  }

  constructor(name) {
    this.name = name;
    this.offsets = new Map();
    const fixed = /^([+-])(\d\d):?(\d\d)$/.exec(name);
    if (fixed) this.fixed = (fixed[1] === "-" ? -1 : 1) * (fixed[2] * 60 + +fixed[3]) * 60000;
    else this.format = new Intl.DateTimeFormat("en-US", { timeZone: name, timeZoneName: "longOffset" });
  }

  /** The milliseconds to add to a time, in milliseconds of UTC, for what clocks show. */
  offset(ms) {
    if (this.fixed !== undefined) return this.fixed;
    const at = Math.floor(ms / ZONE_STEP);
    let offset = this.offsets.get(at);
    if (offset === undefined) {
      const date = new Date(at * ZONE_STEP);
      const text = isNaN(date) ? "" : this.format.formatToParts(date).find((part) => part.type === "timeZoneName").value;
      const [, sign, hours = 0, minutes = 0, seconds = 0] = /^GMT([+-])(\d+):(\d+)(?::(\d+))?$/.exec(text) ?? [];
      offset = (sign === "-" ? -1 : 1) * (hours * 3600 + minutes * 60 + +seconds) * 1000;
      this.offsets.set(at, offset);
    }
    return offset;
  }
}

/** An offset as in ISO 8601: +02:00. */
function offsetText(ms) {
  const of = Math.abs(ms) / 1000, two = (n) => String(Math.floor(n)).padStart(2, "0");
  return `${ms < 0 ? "-" : "+"}${two(of / 3600)}:${two((of / 60) % 60)}${of % 60 ? `:${two(of % 60)}` : ""}`;
}

/** A time in UTC as text, "2013-07-12 18:04:00.120Z", in a zone. */
function inZone(text, zone) {
  const found = zone && /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d+)?Z$/.exec(text);
  if (!found) return text;
  const ms = Date.parse(`${found[1]}T${found[2]}Z`), offset = zone.offset(ms), shown = new Date(ms + offset).toISOString();
  return `${shown.slice(0, -14)} ${shown.slice(-13, -5)}${found[3] ?? ""}${offsetText(offset)}`;
}

/** The milliseconds of a duration as text, "-2d 1:12:07.5", or NaN. */
function parsedDuration(text) {
  const [, sign, days = 0, hours, minutes, seconds] = /^(-?)(?:(\d+)d )?(\d+):(\d\d):(\d\d(?:\.\d+)?)$/.exec(text ?? "") ?? [];
  return (sign ? -1 : 1) * (((+days * 24 + +hours) * 60 + +minutes) * 60000 + Math.round(seconds * 1e9) / 1e6);
}
