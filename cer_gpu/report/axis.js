
// ---- the axis: moments, durations, numbers or positions as text, and round steps ----------------------------------

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [0.000001, 0.00001, 0.0001, 0.001, 0.01, 0.1, 1, 2, 5, 10, 20, 50, 100, 200, 500,
  ...[1, 2, 5, 10, 15, 30].map((s) => s * SECOND), ...[1, 2, 5, 10, 15, 30].map((m) => m * MINUTE),
  ...[1, 2, 3, 6, 12].map((h) => h * HOUR), DAY, 2 * DAY, 7 * DAY, 14 * DAY];
const MS_OF_UNIT = { s: SECOND, ms: 1, us: 1e-3, ns: 1e-6 };
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000, 12000, 120000];

/** The least of 1, 2, 5, 10, 20, ... that is not less. */
function round10(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least * 0.999999);
}

/** About so many round counts from 0 to the most. */
function countTicks(most, wanted) {
  const step = Math.max(1, round10(most / wanted));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/** A duration as text, in its greatest units, so many at most: "2 h 4 min". */
function durationText(ms, nUnits = 2) {
  if (ms < 0) return `-${durationText(-ms, nUnits)}`;
  if (!ms) return "0";
  if (ms < SECOND) return `${+ms.toPrecision(6)} ms`;
  if (ms < MINUTE) return `${+(ms / SECOND).toFixed(3)} s`;
  const units = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [SECOND, "s"]];
  const greatest = units.findIndex(([unit]) => ms >= unit);
  let left = Math.round(ms / SECOND) * SECOND;
  const parts = units.slice(greatest, greatest + nUnits).map(([unit, name]) => {
    const whole = Math.floor(left / unit);
    left -= whole * unit;
    return whole ? `${grouped(whole)} ${name}` : "";
  });
  return parts.filter(Boolean).join(" ");
}

/** The texts and steps of an axis, whose values count from its origin. */
class Axis {
  constructor({ kind, unit, origin, digits = 0, zone = "", column = "" }) {
    Object.assign(this, { kind, unit, digits, zone, column, ownZone: Zone.of(zone) });
    this.origin = BigInt(origin);
    this.isTime = kind === "moment" || kind === "duration";
    this.msOfLength = this.isTime ? 1 : kind === "number" ? MS_OF_UNIT[unit] : undefined;
  }

  /** Show times in UTC, rather than in their own zone; the same for all queries of a page. */
  static isUtc = false;

  get shownZone() { return Axis.isUtc ? null : this.ownZone; }

  /** How far clocks are ahead of UTC at a time, in milliseconds of UTC. */
  offset(ms) { return this.shownZone ? this.shownZone.offset(ms) : 0; }

  /** What clocks show at a value, as milliseconds. */
  wall(value) {
    const ms = Number(this.origin) + value;
    return ms + this.offset(ms);
  }

  /** The value at which clocks show so many milliseconds. */
  valueAt(wall) {
    const guess = wall - this.offset(wall);
    return wall - this.offset(guess) - Number(this.origin);
  }

  plain(value) { return grouped(this.origin + BigInt(Math.round(value))); }

  lengthText(value) {
    if (this.msOfLength) return durationText(value * this.msOfLength);
    const unit = this.kind === "number" ? this.unit : value === 1 ? "position" : "positions";
    return grouped(value) + (unit && ` ${unit}`);
  }

  /** A point in full: all moments of an axis have the digits that its data need. */
  pointText(value) {
    if (this.kind === "duration") return this.lengthText(Number(this.origin) + value);
    if (this.kind !== "moment") return this.plain(value) + (this.unit && ` ${this.unit}`);
    let whole = Math.floor(value), below = Math.round((value - whole) * 1e6);
    if (below === 1e6) [whole, below] = [whole + 1, 0];
    const offset = this.offset(Number(this.origin) + whole);
    const date = new Date(Number(this.origin) + whole + offset);
    if (isNaN(date)) return `${this.plain(value)} ms`;
    const text = date.toISOString(), day = text.slice(0, -14);
    if (this.digits < 0) return day;
    const fraction = (text.slice(-4, -1) + String(below).padStart(6, "0")).slice(0, this.digits);
    return `${day} ${text.slice(-13, -5)}${fraction && `.${fraction}`}${this.shownZone ? offsetText(offset) : this.unit}`;
  }

  /** An edge of a view, which no event may have: to the second where more is seen than a minute. */
  edgeText(value, wide) {
    if (!this.isTime) return this.pointText(value);
    const unit = wide > MINUTE ? SECOND : 1;
    return this.pointText(Math.round((Number(this.origin) + value) / unit) * unit - Number(this.origin));
  }

  /** The least round step that is not less. */
  round(least) {
    if (this.isTime && least <= STEPS.at(-1)) return STEPS.find((step) => step >= least);
    if (this.isTime) return Math.max(round10(least / DAY), 20) * DAY;
    return Math.max(1, round10(least));
  }

  /** A round step of lengths that is not less. */
  roundLength(least) {
    if (!this.msOfLength || this.isTime) return this.round(least);
    const step = STEPS.find((each) => each >= least * this.msOfLength) ?? Math.ceil((least * this.msOfLength) / DAY) * DAY;
    return step / this.msOfLength;
  }

  /** About so many marks on a part of the axis: [value, text]. */
  ticks(low, high, wanted) {
    const least = Math.max((high - low) / Math.max(wanted, 1), this.digits < 0 ? DAY : 0);
    if (this.kind === "moment" && least > 14 * DAY) return this.months(low, high, least);
    if (this.kind === "moment" && isNaN(new Date(Number(this.origin) + low) - new Date(Number(this.origin) + high))) return [];
    const step = this.round(least);
    const base = this.isTime ? Number(this.origin) + this.offset(Number(this.origin) + low) : Number(this.origin % BigInt(step));
    const made = [];
    for (let i = Math.ceil((low + base) / step); i * step - base <= high && made.length < 50; i++) {
      const value = step >= HOUR && this.shownZone ? this.valueAt(i * step) : i * step - base; // clocks may change between
      made.push([value, this.tickText(value, step, !made.length)]);
    }
    return made;
  }

  months(low, high, least) {
    const per = MONTHS.find((m) => m * 30 * DAY >= least) || 1e6;
    const begin = new Date(this.wall(low));
    let month = Math.floor((begin.getUTCFullYear() * 12 + begin.getUTCMonth()) / per) * per;
    const made = [];
    for (; made.length < 50; month += per) {
      const date = new Date(0);
      date.setUTCFullYear(Math.floor(month / 12), month % 12, 1);
      const value = this.valueAt(date.getTime());
      if (!(value <= high)) break;
      const text = date.toISOString();
      if (value >= low) made.push([value, text.slice(0, per % 12 ? -17 : -20)]);
    }
    return made;
  }

  tickText(value, step, isFirst) {
    if (this.kind === "duration") return this.lengthText(Number(this.origin) + value);
    if (this.kind !== "moment") return this.plain(value);
    const text = new Date(this.wall(value)).toISOString();
    const [day, time] = [text.slice(0, -14), text.slice(-13, -1)];
    if (step >= DAY) return day;
    const clock = step >= MINUTE ? time.slice(0, 5) : step >= SECOND ? time.slice(0, 8) : time;
    return isFirst ? `${day} ${clock}` : time === "00:00:00.000" ? day : clock;
  }

  /** The head of a column of moments, which tells where there is a zone. */
  headed(word) { return this.zone ? `${word} (${this.shownZone ? this.zone : "UTC"})` : word; }

  /** A line on the times of the page. */
  get told() {
    if (this.kind === "position") return "Positions count the events from 0.";
    if (this.kind === "number" && !this.unit) return `Times are the numbers of the column ${this.column}, which has no unit.`;
    if (this.kind !== "moment" || this.digits < 0) return "";
    if (!this.zone) return `Times are as in the column ${this.column}, which has no time zone.`;
    if (this.shownZone) return `Times are in ${this.zone}, the zone of the column ${this.column}.`;
    return `Times are in UTC${this.ownZone ? ` (the zone of the column ${this.column} is ${this.zone})` : ""}.`;
  }
}
