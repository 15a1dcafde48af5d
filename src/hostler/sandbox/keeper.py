import argparse, time, pathlib

a = argparse.ArgumentParser()
a.add_argument("--dir")
n = a.parse_args()
(pathlib.Path(n.dir) / "conf" / "keeper.ready").write_text("x")
time.sleep(1e6)
