// Search runs in a web worker, and browsers start none for pages that are opened from a disk. There, and only there, a hidden
// frame takes the worker's place: it runs the same script, and messages go both ways.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inner = this.frame.contentWindow
      inner.postMessage = data => this.tell(this, data)
      inner.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve())
      this.load(url).then(() => {
        this.waiting.forEach(data => this.tell(inner, data))
        this.waiting = null
      })
    }

    load(url) {
      return new Promise((loaded, failed) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = new URL(url, location.href).href
        script.onload = loaded
        script.onerror = () => failed(new Error(`${url} can't be loaded`))
        this.frame.contentDocument.head.appendChild(script)
      })
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.tell(this.frame.contentWindow, data)
    }

    tell(target, data) {
      const event = new MessageEvent("message", { data })
      target.dispatchEvent(event)
      if (target === this && this.onmessage) this.onmessage(event)
    }

    terminate() {
      this.frame.remove()
    }
  }
}
