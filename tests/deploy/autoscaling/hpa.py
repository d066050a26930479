"""Kubernetes' HorizontalPodAutoscaler for one external metric of type AverageValue,
as https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/
documents it: the ratio with its tolerance, stabilization windows, policies.
"""

import math

SYNC_SECONDS = 15
TOLERANCE = 0.1


class Hpa:
    def __init__(self, least, most, behavior, average_value=1.0):
        self.least, self.most = least, most
        self.behavior = behavior
        self.average_value = average_value
        self.recommendations = []  # (time, replicas)
        self.events = []  # (time, change)

    def desired(self, metric, current):
        ratio = metric / (self.average_value * current)
        if abs(ratio - 1.0) <= TOLERANCE:
            return current
        return math.ceil(metric / self.average_value)

    def sync(self, now, metric, current):
        """The replicas from now on. `metric` None: it cannot be read."""
        if metric is None:
            return current
        wanted = self.desired(metric, current)
        wanted = self.stabilized(now, wanted, current)
        wanted = self.limited(now, wanted, current)
        wanted = min(max(wanted, self.least), self.most)
        if wanted != current:
            self.events.append((now, wanted - current))
        return wanted

    def stabilized(self, now, wanted, current):
        """Up no further than the least, and down than the most, that was wanted
        within the window of that direction."""
        self.recommendations.append((now, wanted))

        def within(direction):
            window = self.behavior[direction]["stabilizationWindowSeconds"]
            return [
                replicas
                for at, replicas in self.recommendations
                if now - at < window or at == now
            ]

        return min(
            max(current, min(within("scaleUp"))), max(within("scaleDown"))
        )

    def limited(self, now, wanted, current):
        """By the policy of that direction that allows the largest change."""
        if wanted == current:
            return current
        grows = wanted > current
        policies = self.behavior["scaleUp" if grows else "scaleDown"]["policies"]
        bounds = []
        for policy in policies:
            changes = [
                change
                for at, change in self.events
                if now - at < policy["periodSeconds"] and (change > 0) == grows
            ]
            start = current - sum(changes)
            value = policy["value"]
            if policy["type"] == "Pods":
                bounds.append(start + value if grows else start - value)
            elif grows:
                bounds.append(math.ceil(start * (1 + value / 100)))
            else:
                bounds.append(int(start * (1 - value / 100)))
        if grows:
            return max(current, min(wanted, max(bounds)))
        return min(current, max(wanted, min(bounds)))
