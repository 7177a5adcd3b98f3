"""The works that docstrings cite as ``[D, Lemma 3.4]``: one key each, with the version that the numbers refer to.

>>> PAPERS["D"]
'Jiang, Zhang, Joshi: Optimized Tradeoffs for Private Prediction with Majority Ensembling (arXiv:2411.17965v1)'
"""

from collections.abc import Mapping
from types import MappingProxyType

# who, what, and which version
_WORKS = {
    "D": "Jiang, Zhang, Joshi: Optimized Tradeoffs for Private Prediction with Majority Ensembling "
    "(arXiv:2411.17965v1)",
    "P": "Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson: Scalable Private Learning with PATE "
    "(arXiv:1802.08908v1)",
    "S": "Rubinstein, Aldà: Pain-Free Random Differential Privacy with Sensitivity Sampling (ICML 2017, PMLR "
    "70:2950-2959)",
    "ACG16": "Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy "
    "(arXiv:1607.00133v2)",
    "M12": "Mironov: On Significance of the Least Significant Bits for Differential Privacy (ACM CCS 2012)",
    "MMKI17": "Miyato, Maeda, Koyama, Ishii: Virtual Adversarial Training: A Regularization Method for Supervised "
    "and Semi-Supervised Learning (arXiv:1704.03976v2)",
    "KOV15": "Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy (ICML 2015)",
    "P17": "Papernot, Abadi, Erlingsson, Goodfellow, Talwar: Semi-supervised Knowledge Transfer for Deep "
    "Learning from Private Training Data (ICLR 2017, arXiv:1610.05755v4)",
    "BW18": "Balle, Wang: Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and "
    "Optimal Denoising (ICML 2018, arXiv:1805.06530v2)",
    "MV16": "Murtagh, Vadhan: The Complexity of Computing the Optimal Composition of Differential Privacy (TCC 2016-A)",
    "M17": "Mironov: Rényi Differential Privacy (arXiv:1702.07476v3)",
    "CKS20": "Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy (arXiv:2004.00010v5)",
    "ZDW22": "Zhu, Dong, Wang: Optimal Accounting of Differential Privacy via Characteristic Function (AISTATS "
    "2022, PMLR 151:4782-4817)",
    "WRRW23": "Whitehouse, Ramdas, Rogers, Wu: Fully-Adaptive Composition in Differential Privacy (ICML 2023)",
    "MT07": "McSherry, Talwar: Mechanism Design via Differential Privacy (FOCS 2007)",
    "MS20": "McKenna, Sheldon: Permute-and-Flip: A new mechanism for differentially private selection (NeurIPS "
    "2020, arXiv:2010.12603)",
    "AR17": "Aldà, Rubinstein: The Bernstein Mechanism: Function Release under Differential Privacy (AAAI 2017)",
    "SNJ23": "Steinke, Nasr, Jagielski: Privacy Auditing with One (1) Training Run (NeurIPS 2023, arXiv:2305.08846v1)",
    "CJPCN24": "Chadha, Jagielski, Papernot, Choquette-Choo, Nasr: Auditing Private Prediction (ICML 2024)",
    "RZW23": "Redberg, Zhu, Wang: Generalized PTR: User-Friendly Recipes for Data-Adaptive Algorithms with "
    "Differential Privacy (AISTATS 2023, arXiv:2301.00301)",
    "KB15": "Kingma, Ba: Adam: A Method for Stochastic Optimization (ICLR 2015, arXiv:1412.6980v9)",
    "SBL20": "Sohn, Berthelot, Li, Zhang, Carlini, Cubuk, Kurakin, Zhang, Raffel: FixMatch: Simplifying "
    "Semi-Supervised Learning with Consistency and Confidence (arXiv:2001.07685v2)",
    "ZS18": "Zhang, Sabuncu: Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels "
    "(arXiv:1805.07836v4)",
    "H02": "Higham: Accuracy and Stability of Numerical Algorithms, 2nd edition (SIAM 2002, ISBN 0-89871-521-0)",
}
PAPERS: Mapping[str, str] = MappingProxyType(_WORKS)
