// Numbers as people read them.

export function count(value: number): string {
  if (value < 10_000) return value.toLocaleString("en");
  if (value < 1e6) return `${trim(value / 1e3)} k`;
  if (value < 1e9) return `${trim(value / 1e6)} M`;
  return `${trim(value / 1e9)} G`;
}

const trim = (value: number) => value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);

export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return value.toFixed(size < 1 ? 4 : size < 100 ? 3 : size < 10_000 ? 1 : 0);
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} m ${String(Math.floor(value % 60)).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  if (value < 1e6) return `${trim(value / 1e3)} kB`;
  if (value < 1e9) return `${trim(value / 1e6)} MB`;
  return `${trim(value / 1e9)} GB`;
}

export const percent = (share: number) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;

export function ago(time: number): string {
  const gone = Date.now() / 1000 - time;
  return gone < 5 ? "now" : `${seconds(gone)} ago`;
}

export function clock(value: number): string {
  const whole = Math.max(0, value);
  return `${Math.floor(whole / 60)}:${(whole % 60).toFixed(2).padStart(5, "0")}`;
}

// {"a": {"b": 1}} -> {"a.b": "1"}
export function flatten(value: unknown, prefix = ""): Map<string, string> {
  const out = new Map<string, string>();
  if (value && typeof value === "object" && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value))
      for (const [name, text] of flatten(inner, prefix ? `${prefix}.${key}` : key)) out.set(name, text);
  } else {
    out.set(prefix, typeof value === "string" ? value : JSON.stringify(value));
  }
  return out;
}
