"""Runs of checkers whose cases are plans in plain JSON, made from a seed, without the original."""
import collections
import concurrent.futures
import json
import os

from calls import Tools


class Plans:
    """The plans of a checker: make(seed), one(tools, plan) -> (words for the summary, finding), smaller(plan)."""

    def __init__(self, kind, make, one, smaller):
        self.kind, self.make, self.one, self.smaller = kind, make, one, smaller

    def shrink(self, tools, plan, finding):
        """The smallest plan with a finding of the same kind that removing things leads to."""
        again = True
        while again:
            again = False
            for less in self.smaller(plan):
                other = self.one(tools, less)[1]
                if other is not None and other.kind() == finding.kind():
                    plan, again = less, True
                    break
        return plan

    def run(self, args, seeds):
        """Checks new seeds; returns how many failed."""
        tools, counts, kinds = Tools(args.bin_dir, args.timeout), collections.Counter(), collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for seed, (result, finding) in zip(seeds, pool.map(lambda seed: self.one(tools, self.make(seed)), seeds)):
                counts.update(result if finding is None else ["failed"])
                if finding is None:
                    continue
                kinds[finding.kind()] += 1
                print(f"{self.kind}_{seed}: {finding}", flush=True)
                if args.shrink:
                    os.makedirs(f"{args.shrink}/{self.kind}", exist_ok=True)
                    with open(f"{args.shrink}/{self.kind}/{self.kind}_{seed}.json", "w", encoding="utf-8") as f:
                        json.dump(self.shrink(tools, self.make(seed), finding), f)
        for kind, n in kinds.most_common():
            print(f"{n:5d}  {kind}")
        print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
        return counts["failed"]

    def replay(self, args, folder):
        """(findings by name, number) of the stored plans of a folder."""
        tools, wrong, names = Tools(args.bin_dir, args.timeout), {}, sorted(n for n in os.listdir(folder) if n.endswith(".json"))

        def stored(name):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                return self.one(tools, json.load(f))
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for name, (_, finding) in zip(names, pool.map(stored, names)):
                if finding:
                    wrong[name[:-5]] = str(finding)
        return wrong, len(names)
