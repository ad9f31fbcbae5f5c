// Drawn, because not every machine has letters for them.
const kPaths = {
  play: "M5 3.2v9.6L13 8z",
  pause: "M4.5 3h2.6v10H4.5zM8.9 3h2.6v10H8.9z",
  stop: "M4 4h8v8H4z",
  down: "M7.2 2.5h1.6v6l2.3-2.3 1.1 1.1L8 11.5 3.8 7.3l1.1-1.1 2.3 2.3zM3 12.6h10V14H3z",
  larger: "M9.5 2H14v4.5h-1.5V4.6L9.8 7.3 8.7 6.2l2.7-2.7H9.5zM2 9.5h1.5v1.9l2.7-2.7 1.1 1.1-2.7 2.7h1.9V14H2z",
  smaller: "M8.7 2.8h1.5v1.9L12.9 2 14 3.1l-2.7 2.7h1.9v1.5H8.7zM2.8 8.7h4.5v4.5H5.8v-1.9L3.1 14 2 12.9l2.7-2.7H2.8z",
};

export function Icon({ name }: { name: keyof typeof kPaths }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={kPaths[name]} />
    </svg>
  );
}
