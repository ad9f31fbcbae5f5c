// Pictures of one item over the steps, and a closer look at two of them together: what is zoomed and moved in one is zoomed
// and moved in the other.
import { useEffect, useRef, useState } from "preact/hooks";
import "./pictures.css";
import { isTaken } from "../keys";
import { Choice } from "../parts";
import { source } from "../source";
import { useStore } from "../store";
import type { SampleItem } from "../types";

interface Shot {
  path: string;
  url: string;
  text: string;
}

interface View {
  zoom: number;
  x: number; // what is in the middle, as a share of the picture
  y: number;
}

const kWhole: View = { zoom: 1, x: 0.5, y: 0.5 };
const kClosest = 40;

const within = (value: number, low: number, high: number) => Math.min(high, Math.max(low, value));

// Nearer or farther, while the point (at x, y, as shares of the pane from its middle) stays where it is.
function zoomed(view: View, by: number, x = 0, y = 0): View {
  const zoom = within(view.zoom * by, 1, kClosest);
  return {
    zoom,
    x: within(view.x + x / view.zoom - x / zoom, 0, 1),
    y: within(view.y + y / view.zoom - y / zoom, 0, 1),
  };
}

const moved = (view: View, x: number, y: number): View => ({
  ...view,
  x: within(view.x + x / view.zoom, 0, 1),
  y: within(view.y + y / view.zoom, 0, 1),
});

function Pane({ shot, view, set }: { shot: Shot; view: View; set: (view: View) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const drag = useRef<[number, number] | null>(null);
  useEffect(() => {
    const pane = box.current!;
    const wheel = (event: WheelEvent) => {
      event.preventDefault(); // which needs a listener that is not passive
      const size = pane.getBoundingClientRect();
      set(zoomed(view, Math.exp(-event.deltaY * 0.002), (event.clientX - size.left) / size.width - 0.5, (event.clientY - size.top) / size.height - 0.5));
    };
    pane.addEventListener("wheel", wheel, { passive: false });
    return () => pane.removeEventListener("wheel", wheel);
  });
  return (
    <figure>
      <div
        class="pane"
        ref={box}
        onPointerDown={(event) => {
          drag.current = [event.clientX, event.clientY];
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          if (!drag.current) return;
          const size = box.current!.getBoundingClientRect();
          set(moved(view, (drag.current[0] - event.clientX) / size.width, (drag.current[1] - event.clientY) / size.height));
          drag.current = [event.clientX, event.clientY];
        }}
        onPointerUp={() => (drag.current = null)}
        onPointerCancel={() => (drag.current = null)}
        onDblClick={() => set(kWhole)}
      >
        <img
          src={shot.url}
          alt={shot.text}
          draggable={false}
          class={view.zoom >= 3 ? "pixels" : ""}
          style={{ transform: `scale(${view.zoom}) translate(${(0.5 - view.x) * 100}%, ${(0.5 - view.y) * 100}%)` }}
        />
      </div>
      <figcaption>{shot.text}</figcaption>
    </figure>
  );
}

function Viewer({ shots, first, close }: { shots: Shot[]; first: number; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [left, setLeft] = useState(first);
  // Beside it what came before, or what comes after.
  const [right, setRight] = useState(shots.length < 2 ? -1 : first > 0 ? first - 1 : 1);
  const [how, setHow] = useState<"beside" | "flip">("beside");
  const [flipped, setFlipped] = useState(false);
  const [view, setView] = useState(kWhole);
  useEffect(() => dialog.current!.showModal(), []);
  const onKey = (event: KeyboardEvent) => {
    if (isTaken(event)) return;
    const act: Record<string, () => void> = {
      "+": () => setView(zoomed(view, 1.25)),
      "=": () => setView(zoomed(view, 1.25)),
      "-": () => setView(zoomed(view, 0.8)),
      "0": () => setView(kWhole),
      ArrowLeft: () => setView(moved(view, -0.1, 0)),
      ArrowRight: () => setView(moved(view, 0.1, 0)),
      ArrowUp: () => setView(moved(view, 0, -0.1)),
      ArrowDown: () => setView(moved(view, 0, 0.1)),
      a: () => setFlipped(!flipped),
      b: () => setFlipped(!flipped),
    };
    if (!act[event.key]) return;
    act[event.key]();
    event.preventDefault();
  };
  const pick = (label: string, value: number, set: (index: number) => void, none: boolean) => (
    <label>
      {label}
      <select value={String(value)} onChange={(event) => set(Number(event.currentTarget.value))}>
        {none && <option value="-1">nothing</option>}
        {shots.map((shot, i) => <option value={String(i)} key={shot.path}>{shot.text}</option>)}
      </select>
    </label>
  );
  const shown = right < 0 ? [left] : how === "beside" ? [left, right] : [flipped ? right : left];
  return (
    <dialog class="viewer" ref={dialog} aria-label="pictures from near" onClose={close} onKeyDown={onKey}>
      <div class="toolbar" role="toolbar" aria-label="what is seen">
        {pick("picture", left, setLeft, false)}
        {shots.length > 1 && pick("beside", right, setRight, true)}
        {right >= 0 && <Choice label="two pictures" value={how} set={setHow} options={[["beside", "side by side"], ["flip", "one at a time"]]} />}
        {right >= 0 && how === "flip" && <button type="button" onClick={() => setFlipped(!flipped)}>the other <kbd>a</kbd></button>}
        <span class="zooms">
          <button type="button" aria-label="nearer" onClick={() => setView(zoomed(view, 1.5))}>+</button>
          <button type="button" aria-label="farther" onClick={() => setView(zoomed(view, 1 / 1.5))}>−</button>
          <button type="button" onClick={() => setView(kWhole)}>whole</button>
          <output>{Math.round(view.zoom * 100)} %</output>
        </span>
        <button type="button" class="accent" onClick={() => dialog.current!.close()}>close</button>
      </div>
      <div class={`panes ${shown.length > 1 ? "two" : ""}`} tabIndex={0} autofocus role="group" aria-label="pictures">
        {shown.map((index) => <Pane shot={shots[index]} view={view} set={setView} key={`${index}`} />)}
      </div>
      <p class="hint">wheel or <kbd>+</kbd> <kbd>−</kbd> zoom · drag or arrows move · <kbd>0</kbd> whole · <kbd>a</kbd> the other</p>
    </dialog>
  );
}

export function PictureItem({ items }: { items: (SampleItem & { run: string })[] }) {
  const { runs } = useStore();
  const [near, setNear] = useState<number | null>(null);
  const shots: Shot[] = [];
  const films = items.flatMap((item) =>
    [...new Set(item.versions.map((one) => one.label))].map((label) => {
      const run = runs.get(item.run)?.name ?? item.run;
      const frames = item.versions
        .filter((one) => one.label === label)
        .map((one) => {
          const text = `${run} · ${label} · step ${one.step.toLocaleString("en")}`;
          return { step: one.step, index: shots.push({ path: one.path, url: source.url(one.path), text }) - 1 };
        });
      return { key: item.run + label, title: `${run} · ${label}`, frames };
    }),
  );
  return (
    <>
      {films.map((film) => (
        <div class="film" key={film.key}>
          <h4>{film.title}</h4>
          <div class="frames" role="group" aria-label={`${film.title} over the steps`}>
            {film.frames.map(({ step, index }) => (
              <button type="button" class="frame" onClick={() => setNear(index)} key={shots[index].path}>
                <img src={shots[index].url} alt={`${shots[index].text}: look closer`} loading="lazy" />
                <span aria-hidden="true">step {step.toLocaleString("en")}</span>
              </button>
            ))}
          </div>
        </div>
      ))}
      {near !== null && near < shots.length && <Viewer shots={shots} first={near} close={() => setNear(null)} />}
    </>
  );
}
