import { useState } from "preact/hooks";
import "./overview.css";
import { ago, count, percent, seconds, short } from "../format";
import { Icon } from "../icons";
import { Dot, Empty, Health, Progress, StatePill } from "../parts";
import { Spark } from "../plot";
import { source } from "../source";
import { colourOf, link, useStore } from "../store";
import type { Run } from "../types";

let playing: HTMLAudioElement | null = null;

function NewestSample({ run }: { run: Run }) {
  const [on, setOn] = useState(false);
  const path = run.newest_sample;
  if (!path) return null;
  const name = path.split("/").pop()!;
  if (/\.(png|jpe?g|webp)$/.test(path))
    return (
      <a class="newest" href={link("listen")} title={name}>
        <img src={source.url(path)} alt={`newest picture of ${run.name}: ${name}`} loading="lazy" />
      </a>
    );
  if (!/\.(flac|wav|ogg|opus|mp3)$/.test(path)) return null;
  const play = () => {
    playing?.pause();
    if (on) return setOn(false);
    playing = new Audio(source.url(path));
    playing.addEventListener("pause", () => setOn(false));
    playing.addEventListener("ended", () => setOn(false));
    playing.play().then(
      () => setOn(true),
      () => setOn(false),
    );
  };
  return (
    <button type="button" class="newest-sound" onClick={play} aria-label={`${on ? "stop" : "play"} the newest sample of ${run.name}`} title={name}>
      <Icon name={on ? "stop" : "play"} /> newest sample
    </button>
  );
}

function Card({ run }: { run: Run }) {
  const loss = run.losses[run.main_loss], band = run.expected[run.main_loss];
  const parameters = run.parameters.total ?? Object.values(run.parameters).reduce((sum, one) => sum + one, 0);
  return (
    <article class="card run" aria-label={`run ${run.name}`} data-run={run.id}>
      <header>
        <h2>
          <Dot id={run.id} />
          <a href={link("run", run.id)}>{run.name}</a>
        </h2>
        <StatePill run={run} />
      </header>
      <p class="sub">
        {run.task || "run"}
        {parameters > 0 && <> · {count(parameters)} parameters</>}
        {run.device && <> · {run.device}</>}
        {run.resumes > 0 && <> · resumed {run.resumes} ×</>}
      </p>
      {run.data.length > 0 && <p class="sub where" title={run.data.join("\n")}>from {run.data.join("; ")}</p>}
      <div class="run-progress">
        <Progress share={run.steps_total > 0 ? run.step / run.steps_total : 0} label={`steps of ${run.name}`} />
        <div class="numbers">
          <b class="step">{run.step.toLocaleString("en")}</b>
          <span>of {run.steps_total.toLocaleString("en")} steps</span>
          <span class="right">
            {run.seconds_left !== null ? `${seconds(run.seconds_left)} left` : run.updated > 0 ? ago(run.state === "silent" ? run.heard : run.updated) : ""}
          </span>
        </div>
      </div>
      <Spark values={run.spark} colour={colourOf(run.id)} label={`${run.main_loss} over the run, now ${short(loss)}`} />
      <dl class="facts">
        <div>
          <dt>{run.main_loss || "loss"}</dt>
          <dd>{short(loss)}</dd>
        </div>
        <div>
          <dt>a step</dt>
          <dd>{run.spark.length > 0 ? seconds(run.seconds_per_step) : "–"}</dd>
        </div>
        <div>
          <dt>items/s</dt>
          <dd>{run.spark.length > 0 ? short(run.items_per_second) : "–"}</dd>
        </div>
        <div>
          <dt>data wait</dt>
          <dd>{run.data_wait_share === null || run.spark.length === 0 ? "–" : percent(run.data_wait_share)}</dd>
        </div>
      </dl>
      {band && <p class="sub" title="what the recipe gave at this step where it was measured">expected here: {run.main_loss} {short(band[0])} to {short(band[1])}</p>}
      <footer>
        <Health run={run} />
        <NewestSample run={run} />
      </footer>
    </article>
  );
}

export function Overview() {
  const { runs, loaded, hideOthers } = useStore();
  const order = { running: 0, failed: 1, silent: 2, stopped: 3, finished: 4 };
  const list = [...runs.values()]
    .filter((run) => `${run.name} ${run.task}`.toLowerCase().includes(hideOthers.toLowerCase()))
    .sort((a, b) => order[a.state] - order[b.state] || b.updated - a.updated);
  if (!loaded) return <Empty>Looking for runs…</Empty>;
  if (list.length === 0)
    return (
      <Empty>
        <p>{runs.size > 0 ? "No run has that in its name." : "No runs in this folder yet."}</p>
        {runs.size === 0 && (
          <p>
            Start one and it appears here: <code>melete train soundstream --config recipes/soundstream/tiny.toml --data my-recordings</code>
          </p>
        )}
      </Empty>
    );
  return (
    <div class="cards">
      {list.map((run) => (
        <Card run={run} key={run.id} />
      ))}
    </div>
  );
}
