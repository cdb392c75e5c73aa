// Numbers and units as text.

const THIN = "\u00a0";

/** A count or a rate with three digits: 0, 0.52, 7.4, 38, 914, 1.42 k, 12.3 M. */
function compact(value) {
  if (!Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size < 1000) return plain(value);
  const units = ["k", "M", "G", "T", "P", "E"];
  let power = -1, scaled = value;
  do { scaled /= 1000; power += 1; } while (999.5 <= Math.abs(scaled) && power + 1 < units.length);
  return plain(scaled) + THIN + units[power];
}

/** A number below a thousand with up to three digits. */
function plain(value) {
  const size = Math.abs(value);
  const digits = size === 0 || 99.95 <= size ? 0 : 9.995 <= size ? 1 : 2;
  return trimmed(value.toFixed(digits));
}

function trimmed(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A count in full: 1,234,567. */
function whole(value) {
  return Math.round(value).toLocaleString("en-US");
}

function bytes(value) {
  if (value === null) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let power = 0;
  while (1023.5 <= value && power + 1 < units.length) { value /= 1024; power += 1; }
  return plain(value) + THIN + units[power];
}

/** A value that may be negative, by the format of one that is not. */
function signed(value, format) {
  return value < 0 ? "-" + format(-value) : format(value);
}

/** A duration given in microseconds. */
function duration(us) {
  if (us === null || !Number.isFinite(us)) return "-";
  if (us < 999.5) return plain(us) + THIN + "\u00b5s";
  if (us < 999500) return plain(us / 1e3) + THIN + "ms";
  return plain(us / 1e6) + THIN + "s";
}

/** A long time given in milliseconds: 12 s, 3 min, 5 h, 9 days. */
function longTime(ms) {
  for (const [unit, length] of [["days", 864e5], ["h", 36e5], ["min", 6e4]]) {
    if (2 * length <= ms) return Math.floor(ms / length) + THIN + unit;
  }
  return Math.floor(ms / 1000) + THIN + "s";
}

function percent(share) {
  if (!Number.isFinite(share)) return "-";
  // 99.98 % must not become 100 %.
  const shown = Math.floor(share * 1000) / 10;
  if (shown === 0 && share !== 0) return "< 0.1" + THIN + "%";
  return (99 <= shown && shown < 100 ? (Math.floor(share * 1e4) / 100).toFixed(2) : shown) + THIN
    + "%";
}

function money(currency, value) {
  if (!Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size !== 0 && size < 0.01) return "< " + currency + "0.01";
  return currency + (size < 1000 ? value.toFixed(2) : compact(value));
}

/** Returns the quotient, or null without a divisor. */
function ratio(dividend, divisor) {
  return divisor === 0 ? null : dividend / divisor;
}
