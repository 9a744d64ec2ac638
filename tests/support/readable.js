// What is hard to use on a page: controls without a name, texts that hardly stand out from their ground.
() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  // Relative luminance and contrast as WCAG 2.2 defines them.
  const luminance = (colour) => {
    const [r, g, b] = colour.map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = rgb(getComputedStyle(one).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  const contrast = (element) => {
    const [dark, light] = [rgb(getComputedStyle(element).color), ground(element)].map(luminance).sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const shown = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.offsetParent && !one.disabled);
  const named = (one) => one.innerText.trim() || one.labels?.length || one.getAttribute("aria-label");
  return {
    nameless: shown("input,select,button,a").filter((one) => !named(one)).map((one) => one.outerHTML),
    faint: shown("h1,h2,h3,p,label,button,td,th,dt,dd,.name,.facts").filter((one) => one.innerText.trim() && contrast(one) < 4.5)
      .map((one) => [one.className, one.innerText.slice(0, 40), contrast(one)]),
  };
}
