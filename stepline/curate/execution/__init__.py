"""Processes that do units of work under watch: who gives the orders, who watches, who does them."""
