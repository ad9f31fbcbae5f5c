import { render } from "preact";
import { App } from "./app";
import { start } from "./store";
import "./style.css";

start();
render(<App />, document.getElementById("app")!);
