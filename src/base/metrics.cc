#include "base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>
#include <utility>

#include "base/check.h"

namespace levada {
namespace {

class PrometheusCounter final : public Counter {
 public:
  explicit PrometheusCounter(prometheus::Counter& counter) : counter_(counter) {}
  void add(double amount) override { counter_.Increment(amount); }
  double value() const override { return counter_.Value(); }

 private:
  prometheus::Counter& counter_;
};

class PrometheusGauge final : public Gauge {
 public:
  explicit PrometheusGauge(prometheus::Gauge& gauge) : gauge_(gauge) {}
  void set(double value) override { gauge_.Set(value); }
  double value() const override { return gauge_.Value(); }

 private:
  prometheus::Gauge& gauge_;
};

class PrometheusHistogram final : public Histogram {
 public:
  explicit PrometheusHistogram(prometheus::Histogram& histogram) : histogram_(histogram) {}
  void observe(double value) override { histogram_.Observe(value); }

 private:
  prometheus::Histogram& histogram_;
};

// All series of one name: the library's family and our handles, which callers hold by reference.
template <class Series, class Wrapper>
struct Family {
  std::string help;
  prometheus::Family<Series>* family = nullptr;
  std::map<Metrics::Labels, std::unique_ptr<Wrapper>> series;
};

template <class Series, class Wrapper>
using Families = std::map<std::string, Family<Series, Wrapper>>;

}  // namespace

struct Metrics::Impl {
  // Finds or makes the series; `build` opens a family with the library's builder of its type.
  template <class Series, class Wrapper, class Build, class... Bounds>
  Wrapper& series(Families<Series, Wrapper>& families, Build build, const std::string& name, const std::string& help,
                  const Labels& labels, const Bounds&... bounds) {
    std::lock_guard lock(mutex);
    Family<Series, Wrapper>& family = families[name];
    if (family.family == nullptr) {
      LEVADA_CHECK(names.emplace(name, &families).second, "one metric name was used with two types");
      family.help = help;
      family.family = &build().Name(name).Help(help).Register(registry);
    }
    LEVADA_CHECK(family.help == help, "one metric name was used with two help texts");
    std::unique_ptr<Wrapper>& wrapper = family.series[labels];
    if (wrapper == nullptr) {
      Labels all = labels;
      all.insert(common.begin(), common.end());
      wrapper = std::make_unique<Wrapper>(family.family->Add(all, bounds...));
    }
    return *wrapper;
  }

  Labels common;
  prometheus::Registry registry;
  std::mutex mutex;
  std::map<std::string, const void*> names;
  Families<prometheus::Counter, PrometheusCounter> counters;
  Families<prometheus::Gauge, PrometheusGauge> gauges;
  Families<prometheus::Histogram, PrometheusHistogram> histograms;
};

Metrics::Metrics(Labels common) : impl_(std::make_unique<Impl>()) { impl_->common = std::move(common); }
Metrics::~Metrics() = default;

Counter& Metrics::counter(const std::string& name, const std::string& help, const Labels& labels) {
  return impl_->series(impl_->counters, prometheus::BuildCounter, name, help, labels);
}

Gauge& Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return impl_->series(impl_->gauges, prometheus::BuildGauge, name, help, labels);
}

Histogram& Metrics::histogram(const std::string& name, const std::string& help, std::vector<double> bounds,
                              const Labels& labels) {
  return impl_->series(impl_->histograms, prometheus::BuildHistogram, name, help, labels, bounds);
}

std::string Metrics::render() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

}  // namespace levada
