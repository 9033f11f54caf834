// The password goes to the server once; the browser keeps what comes back, which no script can read.
const fault = document.getElementById("fault");

document.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const reply = await fetch("/login", {
    method: "POST",
    headers: { "X-Stepline": "studio" },
    body: JSON.stringify({ password: document.getElementById("password").value }),
  });
  if (reply.ok) {
    location.assign("/");
  } else {
    fault.textContent = (await reply.json()).error;
  }
});
