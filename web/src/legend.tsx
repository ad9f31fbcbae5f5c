// What the strokes of a plot are, and their values where it is pointed at; a press hides one or shows it again.
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Corridor, type Level, type Line, type ValueText, valuesAt } from "./lines";
import { moveFocus } from "./keys";

export interface LegendHandle {
  pointAt(x: number | null): void; // null: nowhere
}

interface LegendProps {
  title: string;
  lines: Line[];
  corridors?: Corridor[];
  levels?: Level[];
  xLabel: string;
  xText?: (x: number) => string;
  hidden: string[];
  setHidden: (names: string[]) => void;
  handle: RefObject<LegendHandle | null>;
}

function Swatch({ of }: { of: ValueText }) {
  return (
    <svg class="swatch" viewBox="0 0 18 8" aria-hidden="true">
      {of.filled && <rect width="18" height="8" fill={of.colour} opacity="0.2" />}
      {of.filled ? (
        [0.5, 7.5].map((y) => <line x1="0" x2="18" y1={y} y2={y} stroke={of.colour} stroke-dasharray={of.dash?.join(" ")} opacity="0.7" />)
      ) : (
        <line x1="0" x2="18" y1="4" y2="4" stroke={of.colour} stroke-width="2" stroke-dasharray={of.dash?.join(" ")} />
      )}
    </svg>
  );
}

// A component of its own: the mouse moves often, and the plot need not be built anew for that.
export function Legend({ title, lines, corridors = [], levels = [], xLabel, xText, hidden, setHidden, handle }: LegendProps) {
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => {
    let frame = 0, wanted: number | null = null;
    handle.current = {
      pointAt(x) {
        wanted = x;
        frame ||= requestAnimationFrame(() => {
          frame = 0;
          setAt(wanted);
        });
      },
    };
    return () => cancelAnimationFrame(frame);
  }, []);
  const all = valuesAt(at, lines, corridors, levels);
  if (all.length === 0) return null;
  const runs = [...new Set(all.map((one) => one.of))];
  const toggle = (name: string) => setHidden(hidden.includes(name) ? hidden.filter((one) => one !== name) : [...hidden, name]);
  const place = at === null ? "" : `${xLabel} ${xText ? xText(at) : Math.round(at).toLocaleString("en")}`;
  return (
    <div class="legend" role="toolbar" aria-label={`lines of ${title}`} onKeyDown={moveFocus}>
      <span class="legend-at" aria-hidden="true">{place}</span>
      {runs.map((run) => (
        <span class="legend-run" key={run}>
          {run && <span class="legend-name">{run}</span>}
          {all
            .filter((one) => one.of === run)
            .map((one) => (
              <button type="button" key={one.name} tabIndex={one.name === all[0].name ? 0 : -1} aria-pressed={!hidden.includes(one.name)} aria-label={`${one.name}: ${one.text}`} title={`${one.name}; press to hide or show`} onClick={() => toggle(one.name)}>
                <Swatch of={one} /> {one.what} <b>{one.text}</b>
              </button>
            ))}
        </span>
      ))}
    </div>
  );
}
