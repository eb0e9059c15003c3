{{- /* The components that are on, as a JSON list: those of the overlay, then the values. */ -}}
{{- define "ttl-after-finished.components" -}}
{{- $known := .Files.Get "components.yaml" | fromYaml }}
{{- $on := dict }}
{{- range (index $known.overlays .Values.overlay).components }}
{{- $_ := set $on . true }}
{{- end }}
{{- range $name, $isOn := .Values.components }}
{{- $_ := set $on $name $isOn }}
{{- end }}
{{- range $component, $configMap := $known.configMaps }}
{{- $_ := set $on $component (not (empty (get ($.Values.configMaps | default dict) $configMap))) }}
{{- end }}
{{- range $known.exclusive }}
{{- if and (get $on (first .)) (get $on (last .)) }}
{{- fail (printf "components: %s and %s exclude each other: set one of them to false" (first .) (last .)) }}
{{- end }}
{{- end }}
{{- if (.Values.namespace | default dict).create }}
{{- $_ := set $on "namespace.create" true }}
{{- end }}
{{- $names := list }}
{{- range $name, $isOn := $on }}
{{- if $isOn }}
{{- $names = append $names $name }}
{{- end }}
{{- end }}
{{- $names | toJson }}
{{- end }}

{{- /* The data of the ConfigMap `settings`: the components, then the overlay, then the values. */ -}}
{{- define "ttl-after-finished.settings" -}}
{{- $known := .Files.Get "components.yaml" | fromYaml }}
{{- $settings := include "ttl-after-finished.settings-of-components" . | fromYaml }}
{{- $settings = mergeOverwrite $settings (index $known.overlays .Values.overlay).settings (.Values.settings | default dict | deepCopy) }}
{{- toYaml $settings }}
{{- end }}

{{- define "ttl-after-finished.kinds" -}}
{{- toYaml .Values.configMaps.kinds }}
{{- end }}

{{- define "ttl-after-finished.policy" -}}
{{- toYaml .Values.configMaps.policy }}
{{- end }}

{{- define "ttl-after-finished.references" -}}
{{- toYaml .Values.configMaps.references }}
{{- end }}

{{- define "ttl-after-finished.settings-name" -}}
settings-{{ include "ttl-after-finished.settings" . | fromYaml | include "ttl-after-finished.hash" }}
{{- end }}

{{- define "ttl-after-finished.kinds-name" -}}
kinds-{{ include "ttl-after-finished.hash" .Values.configMaps.kinds }}
{{- end }}

{{- define "ttl-after-finished.policy-name" -}}
policy-{{ include "ttl-after-finished.hash" .Values.configMaps.policy }}
{{- end }}

{{- define "ttl-after-finished.references-name" -}}
references-{{ include "ttl-after-finished.hash" .Values.configMaps.references }}
{{- end }}

{{- /* The hash that kustomize puts in the name of a ConfigMap with this data. */ -}}
{{- define "ttl-after-finished.hash" -}}
{{- $hash := dict "data" . "kind" "ConfigMap" "name" "" | toJson | sha256sum | trunc 10 }}
{{- $hash | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- end }}

{{- define "ttl-after-finished.sweep-schedule" -}}
{{- $known := .Files.Get "components.yaml" | fromYaml }}
{{- .Values.sweepSchedule | default (index $known.overlays .Values.overlay).sweepSchedule }}
{{- end }}

{{- define "ttl-after-finished.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The labels of all objects. */ -}}
{{- define "ttl-after-finished.labels" -}}
app.kubernetes.io/name: ttl-after-finished
app.kubernetes.io/part-of: ttl-after-finished
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
