import "./style.css"; // first: what is beside a component comes on top of it
import { render } from "preact";
import { App } from "./app";
import { start } from "./store";

start();
render(<App />, document.getElementById("app")!);
