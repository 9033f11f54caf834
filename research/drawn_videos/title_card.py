"""The card that shows a title before the first scene."""

from PIL import Image, ImageDraw, ImageFilter, ImageFont


def titled(image: Image.Image, caption: str) -> Image.Image:
    """Return a title card: the blurred place, darkened, with its caption in the middle."""
    card = Image.blend(image.filter(ImageFilter.GaussianBlur(9)), Image.new("RGB", image.size, (24, 28, 38)), 0.5)
    draw = ImageDraw.Draw(card)
    words, lines = caption.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 20:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    font = ImageFont.load_default(card.height * 0.11)
    for index, line in enumerate(lines):
        y = card.height * (0.5 + 0.15 * (index - (len(lines) - 1) / 2))
        draw.text((card.width / 2 + 2, y + 3), line, font=font, fill=(10, 10, 14), anchor="mm")
        draw.text((card.width / 2, y), line, font=font, fill=(250, 246, 236), anchor="mm")
    return card
