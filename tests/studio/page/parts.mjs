// What several parts of the page's test use.
import { readFileSync } from "node:fs";
import { join } from "node:path";

// A connection that the server has closed meanwhile is found out when it is used: then once more.
export async function ask(...words) {
  try {
    return await fetch(...words);
  } catch {
    return fetch(...words);
  }
}

// Whether a plot has the corridor of the run's table, with its numbers at its first step.
export async function expectedIn({ work, until }, plot, name = "generator.loss") {
  const table = readFileSync(join(work, "runs/live/expect.toml"), "utf8");
  const [, step, low, high] = table.slice(table.indexOf(`[training."${name}"]`)).match(/(\d+) = \[([\d.e+-]+), ([\d.e+-]+)\]/).map(Number);
  return until(`${low} to ${high} at step ${step}`, () =>
    plot.evaluate(
      ({ plot }, [at, ...edges]) =>
        plot?.bands.some((band) => {
          const index = plot.data[0].indexOf(at), values = band.series.map((series) => plot.data[series][index]);
          return index >= 0 && values[1] === edges[0] && values[0] === edges[1];
        }),
      [step, low, high],
    ),
  );
}
