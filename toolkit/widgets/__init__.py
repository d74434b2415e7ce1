"""Pictures of a trace and hands on a run. They see records, live controls and plain callables, never tensors.

| widget      | shows                                                        | synced traits                     |
|-------------|--------------------------------------------------------------|-----------------------------------|
| TreeView    | one step's token tree, with a card for every node            | scene, chosen                     |
| Ribbon      | the text, each token by how it came; a click gives its step  | shown, clicked (text by messages) |
| Charts      | seven charts to choose from, each with its sentence          | plotly's own                      |
| Timeline    | the steps as a strip of bars; dragging along it scrubs       | steps, shown (bars by messages)   |
| Lab         | all of them, with the controls of a live run                 | those of its parts                |
| Replay      | the same views of a saved run                                | those of its parts                |
| ServingView | a server's pages, queues, last events and prefix cache       | scene (changes by messages)       |
| TrainingView | loss, right guesses by depth and acceptance of a head in training | plotly's own                    |
| WhatIf      | a step beside itself, judged by another rule, seed, temperature or smaller tree | those of its parts |

`ServerWatch` keeps a ServingView up to date with a live server, from a thread of its own.
`drift_figure` draws what lossy rules gain and cost, from `toolkit.verification.drift.frontier`;
`coverage_figure` what a draft vocabulary covers, `mask_figure` what each place sees in training-time test.
"""

from toolkit.widgets.charts import Charts as Charts
from toolkit.widgets.compare import CompareView as CompareView
from toolkit.widgets.drift import drift_figure as drift_figure
from toolkit.widgets.elsewhere import enable_in_colab as _enable_in_colab
from toolkit.widgets.export import export_html as export_html
from toolkit.widgets.lab import Lab as Lab
from toolkit.widgets.replay import Replay as Replay
from toolkit.widgets.ribbon import Ribbon as Ribbon
from toolkit.widgets.serving import ServerWatch as ServerWatch
from toolkit.widgets.serving import ServingView as ServingView
from toolkit.widgets.timeline import Timeline as Timeline
from toolkit.widgets.training import TrainingView as TrainingView
from toolkit.widgets.training import coverage_figure as coverage_figure
from toolkit.widgets.training import mask_figure as mask_figure
from toolkit.widgets.tree import TreeView as TreeView
from toolkit.widgets.whatif import WhatIf as WhatIf

_enable_in_colab()
