import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// One file with everything in it: the program carries it, and a report opens from disk.
export default defineConfig({
  plugins: [viteSingleFile()],
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "inline" },
  build: { outDir: "dist", target: "es2022", reportCompressedSize: false },
});
