"""A live server that cuts the line again and again, as a page of `web_server`."""


def cut_stream(whole, pieces, *, lost=0):
    """A page that sends a live stream piece by piece, one a connection, and cuts the line behind each.

    lost: bytes that are sent to nobody between two pieces.
    """
    state = {"at": 0, "asked": 0}

    def page(handler):
        size = -(-len(whole) // pieces // 188) * 188
        part = whole[state["at"] : state["at"] + size - lost]
        state["at"], state["asked"] = state["at"] + size, state["asked"] + 1
        if not part:
            handler.send_error(404)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "video/mp2t")
        handler.end_headers()
        handler.wfile.write(part)

    return page, state
