#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes pictures of TensorBoard's pages for an event folder, to be looked at.

Usage: screenshot.py FOLDER PICTURES [FILTER]. Needs the packages tensorboard and playwright, and a Chromium (CHROMIUM
names one that is not on the path as chromium). Writes timeseries.png, scalars.png, histograms.png, distributions.png,
images.png and text.png, and fails if a page draws nothing. FILTER is a regular expression for the tags on the first two.
"""
import os
import shutil
import sys
import urllib.parse

from playwright.sync_api import sync_playwright

from check import Server, wait_for_data

# The page's address, and what it has drawn when it is ready.
PAGES = {
    "timeseries": ("?tagFilter={filter}#timeseries", "scalar-card line-chart, histogram-card tb-histogram path"),
    "scalars": ("#scalars&tagFilter={filter}", "vz-line-chart2 svg path"),
    "histograms": ("#histograms", "vz-histogram-timeseries svg path"),
    "distributions": ("#distributions", "vz-distribution-chart svg path"),
    "images": ("#images", "tf-image-loader img"),
    "text": ("#text", "tf-text-loader table, tf-text-loader pre"),
}


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    folder, pictures = sys.argv[1:3]
    tag_filter = urllib.parse.quote(sys.argv[3] if len(sys.argv) == 4 else "loss|entropy|learning_rate|sparsity", safe="")
    os.makedirs(pictures, exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with Server(folder) as server, sync_playwright() as playwright:
        wait_for_data(server)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, (address, drawn) in PAGES.items():
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.goto(f"{server.address}/{address.format(filter=tag_filter)}", wait_until="load", timeout=60000)
            page.locator(drawn).first.wait_for(state="attached", timeout=60000)
            page.wait_for_timeout(3000)  # transitions
            page.screenshot(path=os.path.join(pictures, f"{name}.png"))
            print(f"screenshot.py: {name}.png shows {page.locator(drawn).count()} drawings")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
