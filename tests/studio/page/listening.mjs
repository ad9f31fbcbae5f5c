// Sound: decoded, switched, looped, levelled; read sample by sample.
import { ask } from "./parts.mjs";

// Level in dB of a wave file of 16 bits.
function levelOf(wave) {
  const from = wave.indexOf("data") + 8;
  let power = 0;
  for (let at = from; at + 1 < wave.length; at += 2) power += (wave.readInt16LE(at) / 32768) ** 2;
  return 10 * Math.log10(power / ((wave.length - from) / 2));
}

// The page's sound goes into memory instead, at a clock of its own, so that what is heard can be read sample by sample.
const recordInstead = () => {
  window.AudioContext = class extends OfflineAudioContext {
    constructor() {
      super(1, 48000, 48000);
      window.recorder = this;
    }
    resume() {
      return Promise.resolve(); // it begins when the test says so
    }
  };
};

export async function listening(test) {
  const { page, url, check, until, shot, open } = test;
  await page.goto(`${url}#/listen`);
  const tracks = () =>
    page.evaluate(() =>
      [...(window.studioPlayer?.tracks.values() ?? [])].map((track) => ({ key: track.key, seconds: track.buffer.duration, level: track.level, peak: track.peak })),
    );
  const heard = await until("decoded samples", async () => ((await tracks()).length >= 3 ? tracks() : null));
  const original = heard.find((track) => track.key.includes("_original"));
  // The same file as the program wrote it, read without a browser.
  const bytes = (await (await ask(`${url}files/${original.key}`)).arrayBuffer()).byteLength;
  check(bytes > 1000 && Math.abs(original.seconds - 0.5) < 0.002, `a sample is decoded in the page: ${original.seconds} s`);
  // Its level as the program decodes it: through Opus at a rate at which that adds nothing.
  const level = levelOf(Buffer.from(await (await ask(`${url}api/opus?kbps=128&path=${original.key}`)).arrayBuffer()));
  check(Math.abs(original.level - level) < 0.1 && original.peak <= 1, `at ${original.level.toFixed(2)} dB, to the program at ${level.toFixed(2)}`);
  check((await page.locator(".strip canvas").count()) === heard.length, "every player has a spectrogram");
  await page.locator("main").focus(); // a box to tick would keep the key for itself
  await page.keyboard.press("Space");
  await until("playing", () => page.evaluate(() => window.studioPlayer.playing));
  await page.evaluate(() => window.studioPlayer.setLoop([0.1, 0.4]));
  await page.waitForTimeout(400);
  const switched = await page.evaluate(async () => {
    const player = window.studioPlayer, keys = [...player.tracks.keys()];
    const at = player.position, clock = performance.now(), was = player.active;
    player.switchTo(keys.find((key) => key !== was));
    const moved = player.position - at, waited = (performance.now() - clock) / 1000;
    return { moved: ((moved % 0.3) + 0.3) % 0.3, waited, changed: player.active !== was, playing: player.playing, in: player.position >= 0.1 && player.position <= 0.4 };
  });
  check(switched.changed && switched.playing && Math.abs(switched.moved - switched.waited) < 0.03, "A/B goes on at the same position");
  check(switched.in, "a region is looped");
  // What comes out of the page while it switches: one recording to the sample, then the other at the same position, and the
  // steps from one to the other between.
  const recording = await open({ viewport: { width: 1000, height: 700 }, before: recordInstead });
  await recording.goto(url);
  await recording.getByLabel("choose live").uncheck();
  await recording.getByLabel("choose short").check();
  await recording.goto(`${url}#/listen`);
  await until("decoded samples", () => recording.evaluate(() => window.studioPlayer?.tracks.size >= 3));
  const out = await recording.evaluate(async () => {
    const player = window.studioPlayer, context = window.recorder, [a, b] = [...player.tracks.values()];
    player.switchTo(a.key);
    player.play();
    const at = 9600, fade = 384, begin = 960; // samples: of the switch, of its fade, of the first sound
    void context.suspend(at / 48000).then(() => {
      player.switchTo(b.key);
      void OfflineAudioContext.prototype.resume.call(context);
    });
    const heard = (await context.startRendering()).getChannelData(0);
    const one = a.buffer.getChannelData(0), other = b.buffer.getChannelData(0);
    const off = { before: 0, between: 0, after: 0, apart: 0, silence: 0 };
    for (let i = 0; i < begin; ++i) off.silence = Math.max(off.silence, Math.abs(heard[i]));
    for (let i = begin; i < begin + one.length - 200; ++i) {
      const share = Math.min(1, Math.max(0, (i - at) / fade)), sample = i - begin;
      const part = i < at ? "before" : i < at + fade ? "between" : "after";
      off[part] = Math.max(off[part], Math.abs(heard[i] - (one[sample] * (1 - share) + other[sample] * share)));
      off.apart = Math.max(off.apart, Math.abs(one[sample] - other[sample]));
    }
    return off;
  });
  check(out.apart > 0.01 && out.silence === 0 && Math.max(out.before, out.between, out.after) < 1e-4, `what is heard goes over without a gap, at the same sample: ${JSON.stringify(out)}`);
  await recording.context().close();
  await page.keyboard.press("l");
  check((await page.evaluate(() => window.studioPlayer.loop)) === null, "the keyboard ends a loop");
  await page.evaluate(() => (window.studioPlayer.pause(), window.studioPlayer.seek(0.1)));
  await page.keyboard.press("[");
  await page.evaluate(() => window.studioPlayer.seek(0.3));
  await page.keyboard.press("]");
  const loop = await page.evaluate(() => window.studioPlayer.loop);
  check(loop && Math.abs(loop[0] - 0.1) < 0.01 && Math.abs(loop[1] - 0.3) < 0.01, `and sets one: ${loop}`);
  await page.keyboard.press("Space");
  const pressed = await page.evaluate(() => window.studioPlayer.active);
  await page.keyboard.press("a");
  check((await page.evaluate(() => window.studioPlayer.active)) !== pressed, "the keyboard switches, too");
  await page.getByRole("button", { name: "match levels" }).click();
  const loudness = await page.evaluate(() => [...window.studioPlayer.tracks.values()].filter((t) => t.level > -70).map((t) => t.level + 20 * Math.log10(window.studioPlayer.gainOf(t.key))));
  check(Math.max(...loudness) - Math.min(...loudness) < 0.01, "levels are matched on request");
  const slider = page.locator('.toolbar input[type="range"]').first();
  if (await slider.count()) {
    const wasAt = await slider.inputValue();
    await slider.focus();
    await page.keyboard.press("ArrowLeft");
    check((await slider.inputValue()) !== wasAt, "arrows move a slider that has the focus, not the position");
    await page.keyboard.press("ArrowRight");
  }
  await page.getByLabel("choose short").focus();
  await page.keyboard.press("Space");
  check(await page.getByLabel("choose short").isChecked(), "space ticks a box that has the focus");
  await page.keyboard.press("Space");
  await page.getByRole("button", { name: "beside Opus" }).click();
  await until("Opus among the players", async () => (await tracks()).some((track) => track.key.startsWith("opus-")));
  await shot(page, "listen-wide-dark");
  await page.keyboard.press("Space");
}
