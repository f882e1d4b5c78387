"use strict";
// The key of this tab, which `/ui` takes, too.
const key = document.querySelector("input[name=key]");
if (key) {
  key.value = sessionStorage.getItem("topics.key") ?? "";
  key.addEventListener("input", () => sessionStorage.setItem("topics.key", key.value.trim()));
}

// "Send" of an operation: the request of its form, to this server, with the key of this tab.

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-method]");
  if (!form) return;
  event.preventDefault();
  const out = form.querySelector("output");
  const sent = { method: form.dataset.method, headers: { Accept: "application/json" }, cache: "no-store", credentials: "omit" };
  const entered = sessionStorage.getItem("topics.key");
  if (entered) sent.headers.Authorization = `Bearer ${String.fromCharCode(...new TextEncoder().encode(entered))}`;
  const body = form.querySelector("textarea");
  if (body) {
    sent.headers["Content-Type"] = "application/json";
    sent.body = body.value;
  }
  const path = form.querySelector("input").value;
  const shown = document.createElement("pre");
  try {
    const answer = await fetch(new URL(path, location.origin).origin === location.origin ? path : "/", sent);
    let text = await answer.text();
    if (text.length < 100000 && answer.headers.get("Content-Type") === "application/json") text = JSON.stringify(JSON.parse(text), null, 2);
    shown.textContent = `${answer.status}\n${text}`;
  } catch (error) {
    shown.textContent = error.message;
  }
  out.replaceChildren(shown);
});

// The examples call the server that this page is from.
for (const example of document.querySelectorAll("pre.call")) example.textContent = example.textContent.replaceAll(example.dataset.host, location.origin);

// A link to an operation or a shape opens it.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") {
    target.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", openTarget);
openTarget();
