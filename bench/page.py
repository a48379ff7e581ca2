"""Tables in pages: each is between two markers, <!-- name: begin --> and <!-- name: end -->."""


def write_table(path, name, text):
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, after = page.split(begin)[0], page.split(end)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n{text}\n{end}{after}")
