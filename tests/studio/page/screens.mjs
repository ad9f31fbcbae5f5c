// From phones to wide screens, dark and light: nothing wider than the screen, a name for everything that can be pressed.

export async function screens(test) {
  const { url, check, until, shot, shots, open } = test;
  const views = ["", "curves", "settings", "listen", "listen/picture/reconstructions", "blind", "play", "run/live"];
  for (const [width, height] of [[360, 740], [768, 1024], [1600, 900]])
    for (const colorScheme of ["light", "dark"]) {
      const screen = await open({ viewport: { width, height }, colorScheme, ...(width < 500 ? { isMobile: true, hasTouch: true } : {}) });
      await screen.goto(url);
      await until("the runs", async () => (await screen.locator(".run-list input").count()) >= 4);
      await screen.evaluate(() => document.querySelectorAll(".run-list input:not(:checked)").forEach((box) => box.click()));
      for (const view of views) {
        await screen.goto(`${url}#/${view}`);
        await screen.waitForTimeout(shots ? 1500 : 500);
        if (view === "curves")
          await until("a curve in every plot on the screen", () =>
            screen.evaluate(() => {
              const seen = [...document.querySelectorAll("[data-plot] .plot")].filter((one) => one.getBoundingClientRect().top < innerHeight - 80);
              return seen.length > 0 && seen.every((one) => one.plot?.data[0].length > 0 && one.querySelector("canvas").width > 100);
            }),
          );
        const wide = await screen.evaluate(() => document.documentElement.scrollWidth);
        const nameless = await screen.evaluate(
          () => [...document.querySelectorAll("button, input, select, textarea, a, canvas")].filter((e) => !e.closest(".u-legend, .uplot") && !e.textContent.trim() && !e.ariaLabel && !e.labels?.length && !e.title && !e.querySelector("img[alt]")).map((e) => e.outerHTML.slice(0, 120)),
        );
        if (wide > width || nameless.length > 0) throw new Error(`/${view} at ${width}: ${wide} wide, without a name: ${nameless.join(" ")}`);
        await shot(screen, `${view.replaceAll("/", "-") || "runs"}-${width}-${colorScheme}`);
      }
      check(true, `every view fits ${width} pixels in ${colorScheme} colours, with a name for everything`);
      await screen.context().close(); // it would go on asking
    }
}
