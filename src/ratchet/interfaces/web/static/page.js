// Liveness, keys and "Copy". Everything else works without this file.
"use strict";

// --- morphing: rows are matched by id, else by position; what has focus or was opened stays as it is -----------------
const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
const kept = (el) => el === document.activeElement && /^(INPUT|TEXTAREA|SELECT)$/.test(el.nodeName);
const dirty = (el) => /^(INPUT|TEXTAREA)$/.test(el.nodeName) && (el.value !== el.defaultValue || el.checked !== el.defaultChecked);

function attributes(from, to) {
  for (const { name } of [...from.attributes])
    if (!to.hasAttribute(name) && !(name === "open" && from.dataset.touched)) from.removeAttribute(name);
  for (const { name, value } of to.attributes)
    if (from.getAttribute(name) !== value && !(name === "open" && from.dataset.touched)) from.setAttribute(name, value);
}

function morph(from, to) {
  if (from.isEqualNode(to) || kept(from) || dirty(from)) return;
  if (from.nodeType !== 1) { if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue; return; }
  attributes(from, to);
  const byId = new Map([...from.children].filter((c) => c.id).map((c) => [c.id, c]));
  let at = from.firstChild;
  for (const next of [...to.childNodes]) {
    const found = next.id ? byId.get(next.id) : at && same(at, next) ? at : null;
    if (found && same(found, next)) {
      if (found !== at) from.insertBefore(found, at);
      else at = at.nextSibling;
      morph(found, next);
    } else from.insertBefore(next.cloneNode(true), at);
  }
  const extra = [];
  for (; at; at = at.nextSibling) extra.push(at);
  for (const node of extra) if (!(node.contains && node.contains(document.activeElement) && kept(document.activeElement))) node.remove();
}

document.addEventListener("toggle", (e) => { if (e.target.nodeName === "DETAILS" && !e.target.closest(".menu")) e.target.dataset.touched = "1"; }, true);

// --- live: one stream; each event makes the page fetch itself, at most every 300 ms ---------------------------------
const body = document.body, page = body.dataset.page, live = () => document.getElementById("live");
let due = null, busy = false, again = false, connected = false;

function shows(run) { return !body.dataset.run || body.dataset.run === run; }
function state(word, lost) { const el = live(); if (el) { el.hidden = false; el.textContent = word; el.classList.toggle("lost", lost); } }
function soon(ms) { if (due === null) due = setTimeout(refresh, ms); }

async function refresh() {
  due = null;
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { "x-ratchet-live": "1" }, redirect: "error" });
    if (answer.status === 401) { if (!typing()) location.assign("/sign-in"); return; } // signed out, or the server restarted
    if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (page === "inbox" && typing()) return hold(fresh);
      apply(fresh);
    }
  } catch { /* the stream reports the lost connection */ } finally {
    busy = false;
    if (again) { again = false; soon(300); }
  }
}

function apply(fresh) {
  const held = document.querySelector(".fresh");
  if (held) held.remove();
  for (const id of ["main", "top"]) {
    const from = document.getElementById(id), to = fresh.getElementById(id);
    if (from && to) morph(from, to);
  }
  body.dataset.place = fresh.body.dataset.place;
  if (connected) state("live", false);
  followed();
  notified();
}

// New entries wait behind a button while somebody writes an answer.
function typing() { const a = document.activeElement; return a && a.closest && a.closest("form.answer") && dirtyForm(a.closest("form")); }
function dirtyForm(form) { return [...form.elements].some((el) => dirty(el)); }
function hold(fresh) {
  const known = new Set([...document.querySelectorAll(".entry")].map((e) => e.id));
  const count = [...fresh.querySelectorAll(".entry")].filter((e) => !known.has(e.id)).length;
  if (!count || document.querySelector(".fresh")) return;
  const button = document.createElement("button");
  button.className = "btn fresh"; button.type = "button"; button.textContent = `${count} new`;
  button.addEventListener("click", () => apply(fresh));
  document.querySelector(".inbox").before(button);
}

function followed() { for (const log of document.querySelectorAll(".log, #matrix")) if (!log.dataset.read) { if (log.id === "matrix") log.scrollLeft = log.scrollWidth; else log.scrollTop = log.scrollHeight; } }
document.addEventListener("wheel", (e) => { const log = e.target.closest && e.target.closest(".log, #matrix"); if (log) log.dataset.read = "1"; }, { passive: true });

function listen() {
  const run = body.dataset.run ? `&run=${encodeURIComponent(body.dataset.run)}` : "";
  const stream = new EventSource(`/events?after=${encodeURIComponent(body.dataset.place)}${run}`);
  stream.addEventListener("open", () => { if (!connected) soon(0); connected = true; state("live", false); });
  stream.addEventListener("error", () => {
    connected = false; state("reconnecting", true);
    if (stream.readyState === EventSource.CLOSED) { soon(0); setTimeout(listen, 3000); }
  });
  stream.addEventListener("ledger", (e) => { const [r] = e.data.split(" "); if (shows(r)) soon(150); });
}
if (body.dataset.place) { listen(); setInterval(() => { if (!document.hidden && connected) soon(0); }, page === "run" ? 5000 : 10000); followed(); }

// On a phone the pages scroll sideways: show which one this is.
const here = document.querySelector(".nav [aria-current]");
if (here && here.parentElement.scrollWidth > here.parentElement.clientWidth) here.parentElement.scrollLeft = here.offsetLeft - 48;

// --- notifications on request -----------------------------------------------------------------------------------------
let counted = null;
function needed() { const el = document.querySelector(".nav .count"); return el ? parseInt(el.textContent, 10) : 0; }
function notified() {
  const now = needed();
  if (counted !== null && now > counted && "Notification" in window && Notification.permission === "granted")
    new Notification("Ratchet", { body: now === 1 ? "1 thing needs a person" : `${now} things need a person`, tag: "ratchet" });
  counted = now;
}
counted = needed();

// --- copy, keys, bulk -------------------------------------------------------------------------------------------------
document.addEventListener("click", async (e) => {
  const copy = e.target.closest(".copy");
  if (copy) { try { await navigator.clipboard.writeText(copy.parentElement.querySelector("code").textContent); copy.firstChild.nodeValue = "Copied"; } catch { getSelection().selectAllChildren(copy.parentElement.querySelector("code")); } }
  if (e.target.id === "notify" && "Notification" in window) Notification.requestPermission();
});
document.addEventListener("change", (e) => {
  if (e.target.id === "keys-off") localStorage.setItem("keys-off", e.target.checked ? "1" : "");
  const picked = document.querySelectorAll(".pick:checked").length, sum = document.getElementById("picked");
  if (sum) sum.textContent = `${picked} selected`;
});

let prefix = "";
const rows = () => [...document.querySelectorAll(".step, .entry, .item h3 a, .tbl tbody a")].filter((el) => el.offsetParent);
function move(by, all) {
  const list = all || rows(), at = list.findIndex((el) => el.contains(document.activeElement) || el === document.activeElement || el.hasAttribute("data-at"));
  const next = list[Math.max(0, Math.min(list.length - 1, at < 0 ? 0 : at + by))];
  if (!next) return;
  list.forEach((el) => el.removeAttribute("data-at")); next.setAttribute("data-at", "");
  const target = next.matches("a, button") ? next : next.querySelector("a, button, input:not([type=hidden])") || next;
  target.focus(); next.scrollIntoView({ block: "nearest" });
}
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.nodeName) || localStorage.getItem("keys-off")) return;
  const key = prefix + e.key; prefix = "";
  const act = {
    g: () => { prefix = "g"; }, gi: () => { location.href = "/inbox"; }, gb: () => { location.href = "/board"; },
    j: () => move(1), k: () => move(-1), n: () => { location.href = "/board/add"; },
    "]": () => move(1, [...document.querySelectorAll(".step.bad")]), "[": () => move(-1, [...document.querySelectorAll(".step.bad")]),
    d: () => { const el = document.querySelector("[id^=diff-]"); if (el) { el.open = true; el.scrollIntoView(); } },
    x: () => { const el = document.activeElement.closest(".item"); if (el) el.querySelector(".pick").click(); },
    z: () => { const el = document.activeElement.closest(".entry"); if (el) el.querySelector("[value=snooze]").click(); },
    "/": () => { const el = document.querySelector(".filters a"); if (el) { el.focus(); e.preventDefault(); } },
    "?": () => { const el = document.getElementById("keys"); if (el) el.showModal(); },
  }[key];
  if (act) act();
});
const off = document.getElementById("keys-off");
if (off) off.checked = Boolean(localStorage.getItem("keys-off"));

// --- a form that validates as one types -----------------------------------------------------------------------------
const check = document.querySelector("form[data-check]");
if (check) {
  let timer = null, sent = 0;
  check.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const turn = ++sent;
      const answer = await fetch(check.dataset.check, { method: "POST", body: new URLSearchParams(new FormData(check)) });
      if (!answer.ok || turn !== sent) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const note of fresh.querySelectorAll(".field-note")) { const at = document.getElementById(note.id); if (at) at.replaceWith(note); }
    }, 250);
  });
}
