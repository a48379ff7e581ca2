"""Tables in pages: each is between two markers, <!-- name: begin --> and <!-- name: end -->."""
import re


def parts(path, name):
    """What is before, in and after the table."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"{path}: expected {begin} and {end} once")
    before, rest = page.split(begin)
    inside, after = rest.split(end)
    return before + begin, inside, end + after


def table_of(path, first):
    """The name of the table in the page whose first line is `first`; None if there is none."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line, after in zip(lines, lines[1:]):
        begin = re.fullmatch("<!-- (\\w+): begin -->", line)
        if begin and after == first:
            return begin[1]
    return None


def read_table(path, name):
    """The cells of each row, without the head."""
    lines = [line for line in parts(path, name)[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def write_table(path, name, text):
    before, _, after = parts(path, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}\n{text}\n{after}")
