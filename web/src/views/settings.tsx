import { useState } from "preact/hooks";
import "./settings.css";
import { flatten } from "../format";
import { Dot, Empty, Toggle, useLoaded } from "../parts";
import { source } from "../source";
import { useStore } from "../store";

// A name may go on in the next line after its dots and underscores, and nowhere else.
const broken = (name: string) => name.split(/(?<=[._])/).flatMap((part) => [part, <wbr />]);

export function SettingsView() {
  const { chosen, runs } = useStore();
  const [all, setAll] = useState(false);
  const [filter, setFilter] = useState("");
  const known = chosen.filter((id) => runs.has(id));
  const loaded = useLoaded(known.join("\n"), () => Promise.all(known.map((id) => source.run(id))));
  if (known.length === 0) return <Empty>Choose runs in the list to see their settings side by side.</Empty>;
  const details = (loaded.value ?? []).filter((run) => known.includes(run.id));
  const columns = details.map((run) => flatten(run.config ?? {}));
  const names = [...new Set(columns.flatMap((column) => [...column.keys()]))];
  const told = columns.filter((column) => column.size > 0); // a run that left no settings differs in nothing
  const differs = (name: string) => new Set(told.map((column) => column.get(name))).size > 1;
  const different = names.filter(differs);
  const rows = (all || details.length < 2 ? names : different).filter((name) => name.includes(filter));
  return (
    <>
      <div class="toolbar" role="toolbar" aria-label="which settings are shown">
        <Toggle on={all} set={setAll}>all settings</Toggle>
        <input type="search" placeholder="filter settings" aria-label="filter settings" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
        <span class="hint">
          {details.length > 1 ? `${different.length} of ${names.length} settings differ` : `${names.length} settings; choose a second run to compare`}
        </span>
      </div>
      <div class="card table-box" tabIndex={0} role="region" aria-label="settings">
        <table class="settings">
          <thead>
            <tr>
              <th scope="col">setting</th>
              {details.map((run) => (
                <th scope="col">
                  <Dot id={run.id} /> {run.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((name) => (
              <tr class={details.length > 1 && differs(name) ? "differs" : ""}>
                <th scope="row">{broken(name)}</th>
                {columns.map((column) => (
                  <td>{column.get(name) ?? <span class="none">not there</span>}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
        {rows.length === 0 && loaded.value && <Empty>{details.length > 1 ? "The chosen runs have the same settings." : "No settings."}</Empty>}
      </div>
    </>
  );
}
