// Players on top of each other with their spectrograms: one position for all, one of them is heard.
import { useEffect, useRef, useState } from "preact/hooks";
import "./rack.css";
import { clock } from "../format";
import { Icon } from "../icons";
import { isTaken } from "../keys";
import { Toggle } from "../parts";
import { decode, measure, SyncPlayer, type Track } from "../player";
import { draw, loudestOf, spectrogram } from "../spectrogram";

export interface Sound {
  key: string; // unique
  name: string;
  url: string;
  colour: string;
}

// Of several racks on a page, keys are for the one that was touched last, or the first.
const racks: SyncPlayer[] = [];
const touch = (rack: SyncPlayer) => {
  racks.splice(racks.indexOf(rack), 1);
  racks.unshift(rack);
};

export function Rack({ sounds, title }: { sounds: Sound[]; title: string }) {
  const player = useRef<SyncPlayer | undefined>(undefined);
  player.current ??= new SyncPlayer();
  const rack = player.current;
  const [, again] = useState(0);
  const [pictures, setPictures] = useState<Map<string, Float32Array[]>>(new Map());
  const [errors, setErrors] = useState<Map<string, string>>(new Map());
  const before = useRef("");
  const line = useRef<HTMLDivElement>(null);
  const key = sounds.map((sound) => sound.key + sound.url.slice(0, 200)).join("\n");

  useEffect(() => {
    rack.onChange = () => again((n) => n + 1);
    racks.push(rack);
    (window as unknown as { studioPlayer?: SyncPlayer }).studioPlayer = rack; // for those who test the page
    return () => {
      racks.splice(racks.indexOf(rack), 1);
      rack.stop();
    };
  }, []);

  useEffect(() => {
    let current = true;
    const failed = new Map<string, string>();
    void Promise.all(
      sounds.map(async (sound): Promise<Track | null> => {
        try {
          return measure(sound.key, await decode(sound.url));
        } catch (error) {
          failed.set(sound.key, `cannot be played: ${error instanceof Error ? error.message : error}`);
          return null;
        }
      }),
    ).then((tracks) => {
      if (!current) return;
      const good = tracks.filter((track) => track !== null);
      rack.setTracks(good);
      setErrors(failed);
      const seconds = rack.duration, made = new Map<string, Float32Array[]>();
      for (const track of good) made.set(track.key, spectrogram(track.buffer, seconds, 16000));
      setPictures(made);
    });
    return () => {
      current = false;
    };
  }, [key]);

  const hear = (next: string) => {
    if (next !== rack.active) before.current = rack.active;
    rack.switchTo(next);
  };

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTaken(event) || racks[0] !== rack) return;
      const keys = sounds.map((sound) => sound.key), at = keys.indexOf(rack.active);
      const act: Record<string, () => void> = {
        " ": () => rack.toggle(),
        ArrowLeft: () => rack.seek(rack.position - (event.shiftKey ? 0.1 : 1)),
        ArrowRight: () => rack.seek(rack.position + (event.shiftKey ? 0.1 : 1)),
        ArrowUp: () => hear(keys[(at + keys.length - 1) % keys.length]),
        ArrowDown: () => hear(keys[(at + 1) % keys.length]),
        a: () => hear(before.current && rack.tracks.has(before.current) ? before.current : keys[(at + 1) % keys.length]),
        b: () => hear(before.current && rack.tracks.has(before.current) ? before.current : keys[(at + 1) % keys.length]),
        l: () => rack.setLoop(null),
        // A loop without a mouse: from here, up to here.
        "[": () => rack.setLoop([rack.position, rack.loop && rack.loop[1] > rack.position ? rack.loop[1] : rack.duration]),
        "]": () => rack.setLoop([rack.loop && rack.loop[0] < rack.position ? rack.loop[0] : 0, rack.position]),
        m: () => rack.setMatched(!rack.matched),
        Home: () => rack.seek(0),
      };
      const number = Number(event.key);
      if (number >= 1 && number <= keys.length) hear(keys[number - 1]);
      else if (act[event.key]) act[event.key]();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [key]);

  // The line that moves is moved without drawing the page anew.
  useEffect(() => {
    let frame = 0;
    const move = () => {
      line.current?.style.setProperty("--at", `${rack.duration > 0 ? (rack.position / rack.duration) * 100 : 0}%`);
      const time = line.current?.querySelector(".time");
      if (time) time.textContent = `${clock(rack.position)} / ${clock(rack.duration)}`;
      frame = requestAnimationFrame(move);
    };
    move();
    return () => cancelAnimationFrame(frame);
  }, []);

  const loudest = Math.max(-60, ...[...pictures.values()].map(loudestOf));
  return (
    <div class="rack" ref={line} role="group" aria-label={`players of ${title}`} onPointerDown={() => touch(rack)} onFocusIn={() => touch(rack)} aria-keyshortcuts="Space ArrowLeft ArrowRight ArrowUp ArrowDown A M L [ ]">
      <div class="toolbar" role="toolbar" aria-label="playing">
        <button type="button" class="accent play" onClick={() => rack.toggle()} aria-label={rack.playing ? "pause" : "play"} aria-keyshortcuts="Space">
          <Icon name={rack.playing ? "pause" : "play"} />
        </button>
        <span class="time" aria-hidden="true" />
        <Toggle on={rack.matched} set={(on) => rack.setMatched(on)} title="all as loud as the quietest (m)">match levels</Toggle>
        {rack.loop ? (
          <button type="button" onClick={() => rack.setLoop(null)}>loop {clock(rack.loop[0])} – {clock(rack.loop[1])} ×</button>
        ) : (
          <span class="hint">drag over a spectrogram to loop a part</span>
        )}
        <span class="hint keys">
          <kbd>space</kbd> play <kbd>←</kbd><kbd>→</kbd> seek <kbd>1</kbd>–<kbd>{Math.max(2, sounds.length)}</kbd> hear <kbd>a</kbd> back and forth <kbd>[</kbd> <kbd>]</kbd> <kbd>l</kbd> loop <kbd>m</kbd> match
        </span>
      </div>
      {sounds.map((sound, index) => {
        const track = rack.tracks.get(sound.key);
        return (
          <div class={`strip ${rack.active === sound.key ? "active" : ""}`} key={sound.key} data-sound={sound.key}>
            <button type="button" class="pick" aria-pressed={rack.active === sound.key} onClick={() => (rack.active === sound.key ? rack.toggle() : hear(sound.key))} style={{ "--colour": sound.colour }}>
              <kbd>{index + 1}</kbd>
              <span>{sound.name}</span>
              <small>
                {track ? `${track.buffer.duration.toFixed(2)} s · ${track.level.toFixed(1)} dB` : (errors.get(sound.key) ?? "loading…")}
                {track && rack.matched && ` · ${(20 * Math.log10(rack.gainOf(sound.key))).toFixed(1)} dB`}
              </small>
            </button>
            <Picture rack={rack} values={pictures.get(sound.key)} loudest={loudest} name={sound.name} onHear={() => hear(sound.key)} />
            <a class="quiet" href={sound.url} download aria-label={`download ${sound.name}`}><Icon name="down" /></a>
          </div>
        );
      })}
    </div>
  );
}

function Picture({ rack, values, loudest, name, onHear }: { rack: SyncPlayer; values?: Float32Array[]; loudest: number; name: string; onHear: () => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const drag = useRef<number | null>(null);
  const [marking, setMarking] = useState<[number, number] | null>(null);
  useEffect(() => {
    if (values) draw(canvas.current!, values, loudest);
  }, [values, loudest]);
  const place = (event: PointerEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * rack.duration;
  };
  const range = marking ?? rack.loop;
  const share = (seconds: number) => `${rack.duration > 0 ? (seconds / rack.duration) * 100 : 0}%`;
  return (
    <div
      class="picture"
      onPointerDown={(event) => {
        drag.current = place(event);
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        if (drag.current === null) return;
        const at = place(event);
        if (Math.abs(at - drag.current) > rack.duration * 0.02) setMarking([Math.min(at, drag.current), Math.max(at, drag.current)]);
      }}
      onPointerUp={(event) => {
        onHear();
        if (marking) rack.setLoop(marking);
        else rack.seek(place(event));
        drag.current = null;
        setMarking(null);
      }}
    >
      <canvas ref={canvas} role="img" aria-label={`spectrogram of ${name}`} width="64" height="96" />
      {range && <i class="loop" style={{ left: share(range[0]), width: share(range[1] - range[0]) }} aria-hidden="true" />}
      <i class="playhead" aria-hidden="true" />
    </div>
  );
}
