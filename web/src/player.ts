// Several recordings of one thing, played together and heard one at a time: switching changes which one is loud, so the
// position stays to the sample and there is no gap.
import { bytesOf } from "./source";

export interface Track {
  key: string;
  buffer: AudioBuffer;
  level: number; // dB of its mean power
  peak: number;
}

interface Voice {
  source: AudioBufferSourceNode;
  gain: GainNode;
}

const kFadeSeconds = 0.008;
let context: AudioContext | null = null;
const decoded = new Map<string, Promise<AudioBuffer>>();

export function audioContext(): AudioContext {
  context ??= new AudioContext();
  return context;
}

const kLowPass = "low-pass:", kLowPassHz = 3500;
export const lowPassed = (url: string) => kLowPass + url; // an address of what decode() makes of it

async function throughLowPass(sound: AudioBuffer): Promise<AudioBuffer> {
  const offline = new OfflineAudioContext(sound.numberOfChannels, sound.length, sound.sampleRate);
  const node = offline.createBufferSource();
  node.buffer = sound;
  let last: AudioNode = node;
  // Butterworth's of order 8: four of order 2 with their own resonances.
  for (const k of [1, 3, 5, 7]) {
    const filter = offline.createBiquadFilter();
    filter.type = "lowpass";
    filter.frequency.value = kLowPassHz;
    filter.Q.value = -20 * Math.log10(2 * Math.cos((k * Math.PI) / 16)); // in dB here
    last = last.connect(filter);
  }
  last.connect(offline.destination);
  node.start();
  return offline.startRendering();
}

// Decoded once; the oldest are forgotten beyond a number.
export function decode(url: string): Promise<AudioBuffer> {
  let found = decoded.get(url);
  if (!found) {
    found = url.startsWith(kLowPass)
      ? decode(url.slice(kLowPass.length)).then(throughLowPass)
      : bytesOf(url).then((bytes) => audioContext().decodeAudioData(bytes));
    found.catch(() => decoded.delete(url));
    decoded.set(url, found);
    if (decoded.size > 80) decoded.delete(decoded.keys().next().value!);
  }
  return found;
}

export function measure(key: string, buffer: AudioBuffer): Track {
  let power = 0, peak = 0;
  for (let channel = 0; channel < buffer.numberOfChannels; ++channel)
    for (const sample of buffer.getChannelData(channel)) {
      power += sample * sample;
      peak = Math.max(peak, Math.abs(sample));
    }
  return { key, buffer, level: 10 * Math.log10(power / (buffer.length * buffer.numberOfChannels) + 1e-12), peak };
}

export class SyncPlayer {
  tracks = new Map<string, Track>();
  active = "";
  playing = false;
  loop: [number, number] | null = null;
  matched = false;
  onChange: () => void = () => {};

  private static sounding: SyncPlayer | null = null; // two at a time are heard as neither
  private voices = new Map<string, Voice>();
  private startedAt = 0; // of the context's clock
  private offset = 0; // where in the sound it started

  get duration(): number {
    return Math.max(0, ...[...this.tracks.values()].map((track) => track.buffer.duration));
  }

  get position(): number {
    if (!this.playing) return this.offset;
    const at = this.offset + (audioContext().currentTime - this.startedAt);
    if (!this.loop) return Math.min(at, this.duration);
    const [from, to] = this.loop;
    return at < to ? at : from + ((at - from) % (to - from));
  }

  // So that all are as loud as the quietest one that can be heard; nothing is made louder, so nothing clips.
  gainOf(key: string): number {
    const track = this.tracks.get(key);
    if (!this.matched || !track) return 1;
    const heard = [...this.tracks.values()].map((one) => one.level).filter((level) => level > -70);
    if (heard.length === 0 || track.level <= -70) return 1;
    return 10 ** ((Math.min(...heard) - track.level) / 20);
  }

  setTracks(tracks: Track[]) {
    const again = this.playing, at = this.position;
    this.silence();
    this.tracks = new Map(tracks.map((track) => [track.key, track]));
    if (!this.tracks.has(this.active)) this.active = tracks[0]?.key ?? "";
    this.offset = Math.min(at, this.duration);
    if (again) this.play();
    else this.onChange();
  }

  play() {
    const clock = audioContext();
    void clock.resume();
    this.silence();
    if (this.tracks.size === 0) return;
    if (SyncPlayer.sounding !== this) SyncPlayer.sounding?.pause();
    SyncPlayer.sounding = this;
    if (this.offset >= this.duration - 0.01) this.offset = this.loop?.[0] ?? 0;
    if (this.loop && (this.offset < this.loop[0] || this.offset >= this.loop[1])) this.offset = this.loop[0];
    const when = clock.currentTime + 0.02;
    for (const [key, track] of this.tracks) {
      const source = clock.createBufferSource(), gain = clock.createGain();
      source.buffer = track.buffer;
      if (this.loop) {
        source.loop = true;
        source.loopStart = this.loop[0];
        source.loopEnd = Math.min(this.loop[1], track.buffer.duration);
      }
      gain.gain.value = key === this.active ? this.gainOf(key) : 0;
      source.connect(gain).connect(clock.destination);
      source.start(when, Math.min(this.offset, track.buffer.duration));
      this.voices.set(key, { source, gain });
    }
    const longest = [...this.tracks.values()].reduce((a, b) => (b.buffer.duration > a.buffer.duration ? b : a));
    this.voices.get(longest.key)!.source.onended = () => {
      if (!this.playing || this.loop) return;
      this.silence();
      this.offset = 0;
      this.onChange();
    };
    this.startedAt = when;
    this.playing = true;
    this.onChange();
  }

  private silence() {
    for (const { source, gain } of this.voices.values()) {
      source.onended = null;
      source.stop();
      source.disconnect();
      gain.disconnect();
    }
    this.voices.clear();
    this.playing = false;
    if (SyncPlayer.sounding === this) SyncPlayer.sounding = null;
  }

  pause() {
    const at = this.position;
    this.silence();
    this.offset = at;
    this.onChange();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  seek(to: number) {
    const again = this.playing;
    this.silence();
    this.offset = Math.min(Math.max(0, to), this.duration);
    if (again) this.play();
    else this.onChange();
  }

  setLoop(loop: [number, number] | null) {
    const again = this.playing, at = this.position;
    this.silence();
    this.loop = loop && loop[1] - loop[0] > 0.02 ? loop : null;
    this.offset = at;
    if (again) this.play();
    else this.onChange();
  }

  setMatched(matched: boolean) {
    this.matched = matched;
    this.balance();
    this.onChange();
  }

  // Hear another one, from the same moment on.
  switchTo(key: string) {
    if (!this.tracks.has(key)) return;
    this.active = key;
    this.balance();
    this.onChange();
  }

  private balance() {
    const now = audioContext().currentTime;
    for (const [key, { gain }] of this.voices) {
      gain.gain.cancelScheduledValues(now);
      gain.gain.setValueAtTime(gain.gain.value, now);
      gain.gain.linearRampToValueAtTime(key === this.active ? this.gainOf(key) : 0, now + kFadeSeconds);
    }
  }

  stop() {
    this.silence();
    this.offset = 0;
    this.onChange();
  }
}

// A wave file of 16 bits, for what a microphone gave.
export function waveFile(samples: Float32Array, rate: number): Blob {
  const view = new DataView(new ArrayBuffer(44 + samples.length * 2));
  const text = (at: number, word: string) => [...word].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + samples.length * 2, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, samples.length * 2, true);
  samples.forEach((sample, i) => view.setInt16(44 + i * 2, Math.round(Math.max(-1, Math.min(1, sample)) * 32767), true));
  return new Blob([view.buffer], { type: "audio/wav" });
}
