// Values of several rows over the steps as colours: how much of every codebook is in use.
import { useEffect, useRef } from "preact/hooks";
import "./heatmap.css";
import { heat } from "./colours";
import { short } from "./format";
import { useStore } from "./store";

export interface HeatRow {
  name: string;
  x: number[];
  y: number[];
}

export function HeatMap({ rows, low, high, label }: { rows: HeatRow[]; low: number; high: number; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { theme } = useStore();
  const steps = [...new Set(rows.flatMap((row) => row.x))].sort((a, b) => a - b);
  useEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    canvas.current!.width = Math.max(1, steps.length);
    canvas.current!.height = Math.max(1, rows.length);
    rows.forEach((row, line) =>
      row.x.forEach((step, i) => {
        const [r, g, b] = heat((row.y[i] - low) / (high - low || 1));
        context.fillStyle = `rgb(${r},${g},${b})`;
        context.fillRect(steps.indexOf(step), line, 1, 1);
      }),
    );
  }, [rows, low, high, theme]);
  if (steps.length === 0) return null;
  return (
    <figure class="heatmap">
      <div class="heat-rows" aria-hidden="true">
        {rows.map((row) => (
          <span>
            {row.name} <b>{short(row.y[row.y.length - 1])}</b>
          </span>
        ))}
      </div>
      <canvas
        ref={canvas}
        role="img"
        style={{ height: `${Math.max(24, rows.length * 18)}px` }}
        aria-label={`${label}: ${rows.map((row) => `${row.name} now ${short(row.y[row.y.length - 1])}`).join(", ")}`}
      />
      <figcaption>
        <span>step {steps[0].toLocaleString("en")}</span>
        <span class="heat-scale">
          {Number(low.toPrecision(3))} <i /> {Number(high.toPrecision(3))}
        </span>
        <span>step {steps[steps.length - 1].toLocaleString("en")}</span>
      </figcaption>
    </figure>
  );
}
