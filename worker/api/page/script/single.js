// One request with one answer, which is shown whole.

/** A form, a button and a status line. */
class Single {
  /** name: of the elements' ids; requestNow: path and body of what would be sent now; take: shows
   *  the answer of a request, and returns what the status says of it. */
  constructor(name, requestNow, take) {
    this.send = $(`${name}-send`);
    this.status = $(`${name}-status`);
    this.requestNow = requestNow;
    this.take = take;
    this.sent = null; // the last request, as it was sent
    this.abort = null;
    const form = $(`${name}-form`);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.send.disabled) this.run();
    });
    for (const field of form.querySelectorAll("textarea")) {
      field.addEventListener("input", () => showCode());
      field.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      });
    }
  }

  enable() {
    this.send.disabled = this.abort !== null || !isOpen();
  }

  async run() {
    const request = this.requestNow();
    this.abort = new AbortController();
    this.sent = request;
    this.enable();
    this.status.classList.remove("failed");
    say(this.status, "sent");
    const began = performance.now();
    try {
      const answer = await (await ask(request.path, { body: request.body })).json();
      const told = this.take(answer, request);
      say(this.status, `${told} · ${seconds((performance.now() - began) / 1000)}`);
    } catch (error) {
      complain(this.status, error);
    } finally {
      this.abort = null;
      this.enable();
    }
  }
}
