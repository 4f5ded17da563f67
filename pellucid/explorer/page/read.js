/** What comes next: the likeliest tokens. */

import { bars } from "./chart.js";
import { h } from "./dom.js";
import { numberLink } from "./link.js";
import { token } from "./token.js";

export const readScreen = {
  id: "read",
  title: "What comes next",
  needsTrace: false,
  async show(main, args, page) {
    if (!page.trace) {
      main.append(h("h1", null, "Give a prompt"));
      return;
    }
    const { tokens } = await page.ask("next");
    const drawn = bars(tokens.map(({ p }) => p));
    main.append(
      h("h1", null, "What comes next"),
      h(
        "table",
        { class: "terms" },
        h("tbody", null, tokens.map(({ at, label, p }, i) => h("tr", null, h("th", { scope: "row" }, token(label)), h("td", null, numberLink(at, p, "line")), h("td", null, drawn[i])))),
      ),
    );
  },
};
