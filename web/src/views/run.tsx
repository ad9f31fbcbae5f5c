import "./run.css";
import { bytes, count, flatten, percent, seconds, short } from "../format";
import { Copy, Dot, Empty, Health, Progress, StatePill, useLoaded } from "../parts";
import { source } from "../source";
import { choose, link, useStore } from "../store";
import type { Config, EvaluationTable, LoggedText } from "../types";

function Log({ title, texts, tone }: { title: string; texts: LoggedText[]; tone: string }) {
  if (texts.length === 0) return null;
  return (
    <section class="card" aria-label={title}>
      <h3>{title}</h3>
      <ul class={`log ${tone}`}>
        {[...texts].reverse().map((one) => (
          <li>
            <b>{one.step.toLocaleString("en")}</b> {one.text} <time>{new Date(one.time * 1000).toLocaleString()}</time>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Table({ table }: { table: EvaluationTable }) {
  const cell = (text: string) => (text !== "" && Number.isFinite(Number(text)) ? <td class="number">{short(Number(text))}</td> : <td>{text}</td>);
  return (
    <section class="card table-box" aria-label={table.name} tabIndex={0} role="region">
      <h3>{table.name}</h3>
      <table>
        <thead>
          <tr>
            {table.head.map((name) => (
              <th scope="col">{name.replaceAll("_", " ")}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row) => (
            <tr>{row.map(cell)}</tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function SettingsOf({ config }: { config: Config }) {
  const all = [...flatten(config)];
  return (
    <details class="card">
      <summary>settings ({all.length})</summary>
      <dl class="list">
        {all.map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd><code>{value}</code></dd>
          </>
        ))}
      </dl>
    </details>
  );
}

export function RunView({ id }: { id: string }) {
  const { runs } = useStore();
  const run = runs.get(id);
  const details = useLoaded(`${id}:${run?.checkpoints_saved}:${run?.warnings}:${run?.state}`, () => source.run(id)).value;
  const tables = useLoaded(`${id}:${run?.state}`, () => source.tables(id)).value;
  const expected = useLoaded(id, () => source.expected(id)).value;
  const folder = useLoaded("status", () => source.status()).value?.folder ?? "runs";
  if (!run) return <Empty>There is no run called {id} here.</Empty>;
  const place = !source.live ? `runs/${id}` : id === "." ? folder : `${folder}/${id}`;
  const only = () => choose([id]);
  return (
    <>
      <div class="run-head">
        <h1>
          <Dot id={id} /> {run.name} <StatePill run={run} />
        </h1>
        <nav aria-label="of this run">
          <a href={link("curves")} onClick={only}>curves</a>
          <a href={link("listen")} onClick={only}>samples</a>
          <a href={link("settings")} onClick={only}>settings</a>
        </nav>
      </div>
      {run.reason && <p class="sub">{run.reason}</p>}
      <div class="columns">
        <section class="card" aria-label="progress">
          <Progress share={run.steps_total ? run.step / run.steps_total : 0} label="steps" />
          <dl class="list">
            <dt>step</dt>
            <dd>{run.step.toLocaleString("en")} of {run.steps_total.toLocaleString("en")}</dd>
            <dt>time left</dt>
            <dd>{seconds(run.seconds_left)}</dd>
            <dt>trained</dt>
            <dd>{seconds(run.trained_seconds)}{run.resumes > 0 && `, resumed ${run.resumes} times`}</dd>
            <dt>a step</dt>
            <dd>{seconds(run.seconds_per_step)}, {short(run.items_per_second)} items/s</dd>
            <dt>waiting for data</dt>
            <dd>{run.data_wait_share === null ? "–" : percent(run.data_wait_share)}</dd>
            <dt>health</dt>
            <dd><Health run={run} /></dd>
            <dt>started</dt>
            <dd>{run.started ? new Date(run.started * 1000).toLocaleString() : "–"}</dd>
          </dl>
        </section>
        <section class="card" aria-label="what and where from">
          <dl class="list">
            <dt>what</dt>
            <dd>{run.task}</dd>
            <dt>parameters</dt>
            <dd>{Object.entries(run.parameters).map(([part, number]) => `${part} ${count(number)}`).join(", ") || "–"}</dd>
            <dt>data</dt>
            <dd>{run.data.map((line) => <div>{line}</div>)}</dd>
            <dt>machine</dt>
            <dd>{[run.device, run.precision, run.threads > 0 ? `${run.threads} thread${run.threads > 1 ? "s" : ""}` : ""].filter(Boolean).join(", ")}</dd>
            <dt>losses</dt>
            <dd>{Object.entries(run.losses).map(([name, value]) => <span class="pair">{name} <b>{short(value)}</b></span>)}</dd>
            {Object.keys(run.expected).length > 0 && (
              <>
                <dt>expected</dt>
                <dd>{Object.entries(run.expected).map(([name, [low, high]]) => <span class="pair">{name} <b>{short(low)} to {short(high)}</b></span>)}</dd>
              </>
            )}
            {expected?.data && (
              <>
                <dt>as measured on</dt>
                <dd>{expected.data}{expected.machine && `; ${expected.machine}`}</dd>
              </>
            )}
          </dl>
        </section>
        <section class="card" aria-label="commands">
          <h3>Commands</h3>
          {details?.commands.slice(-4).map((line) => <p><Copy text={line} label="the command that trained it" /></p>)}
          {run.state !== "finished" && <p><Copy text={`melete train ${run.task} --out ${place} --resume`} label="the command that goes on" /></p>}
          <p><Copy text={`melete inspect ${place} --summary`} /></p>
          <p><Copy text={`melete export ${place} -o ${run.task}.safetensors`} /></p>
          <p><Copy text={`melete studio export ${place} -o report.html`} label="the command that makes a report" /></p>
        </section>
        {details && details.checkpoints.length > 0 && (
          <section class="card" aria-label="checkpoints">
            <h3>Checkpoints</h3>
            <ul class="log">
              {details.checkpoints.slice(0, 12).map((one) => (
                <li><b>{one.step.toLocaleString("en")}</b> {one.name} <time>{bytes(one.bytes)}</time></li>
              ))}
              {details.checkpoints.length > 12 && <li>and {details.checkpoints.length - 12} more</li>}
            </ul>
          </section>
        )}
        {details && <Log title="Warnings" texts={details.warnings_list} tone="bad" />}
        {details && <Log title="Notes" texts={details.notes} tone="" />}
      </div>
      {details?.config && <SettingsOf config={details.config} />}
      {tables?.map((table) => <Table table={table} key={table.name} />)}
    </>
  );
}
