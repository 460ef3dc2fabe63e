// What: Metrics, named counters, gauges and histograms, rendered as Prometheus text.
// Owner: whoever composes the process; returned references live as long as the Metrics object.
// Thread: any; updating is lock-free or nearly so.
// Invariant: one name has one type and one help text; asking again for the same name and labels gives the same object.
// Names carry SGLang's prefix "sglang:" where SGLang has the metric, "levada:" otherwise.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace levada {

class Counter {
 public:
  virtual ~Counter() = default;
  virtual void add(double amount = 1) = 0;  // amount >= 0
  virtual double value() const = 0;
};

class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void set(double value) = 0;
  virtual double value() const = 0;
};

class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void observe(double value) = 0;
};

class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;
  // `common` labels are added to every series, e.g. {{"model_name", "smollm2"}}.
  explicit Metrics(Labels common = {});
  ~Metrics();

  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, std::vector<double> bounds,
                       const Labels& labels = {});
  // Prometheus text format 0.0.4.
  std::string render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada
