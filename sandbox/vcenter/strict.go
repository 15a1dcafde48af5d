package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"
)

// decodeStrict reads JSON into a struct and names the full path of whatever does not fit.
// encoding/json names neither the index inside a list nor the place of an unknown field, and an
// inventory has thousands of entries: "datacenters[0].vms[3].cpus" is worth these lines.
func decodeStrict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
			return fmt.Errorf("line %d: not valid JSON: %v", line, err)
		}
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty; a JSON object is expected")
		}
		return fmt.Errorf("not valid JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the JSON object")
	}
	return fill("", tree, reflect.ValueOf(into).Elem())
}

func at(path string) string {
	if path == "" {
		return "the top"
	}
	return path
}

func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func fill(path string, value any, into reflect.Value) error {
	if value == nil {
		return nil // null is the same as leaving the field out
	}
	switch into.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(into.Type().Elem())
		if err := fill(path, value, fresh.Elem()); err != nil {
			return err
		}
		into.Set(fresh)
	case reflect.Struct:
		return fillStruct(path, value, into)
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return fmt.Errorf("%s: a list is expected, not %s", at(path), kindOf(value))
		}
		fresh := reflect.MakeSlice(into.Type(), len(list), len(list))
		for i := range list {
			if err := fill(fmt.Sprintf("%s[%d]", path, i), list[i], fresh.Index(i)); err != nil {
				return err
			}
		}
		into.Set(fresh)
	case reflect.String:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%s: a text is expected, not %s", at(path), kindOf(value))
		}
		into.SetString(text)
	case reflect.Bool:
		yes, ok := value.(bool)
		if !ok {
			return fmt.Errorf("%s: true or false is expected, not %s", at(path), kindOf(value))
		}
		into.SetBool(yes)
	case reflect.Int, reflect.Int32, reflect.Int64:
		number, ok := value.(json.Number)
		if !ok {
			return fmt.Errorf("%s: a whole number is expected, not %s", at(path), kindOf(value))
		}
		n, err := number.Int64()
		if err != nil || into.OverflowInt(n) {
			return fmt.Errorf("%s: a whole number is expected, not %s", at(path), number)
		}
		into.SetInt(n)
	case reflect.Float64:
		number, ok := value.(json.Number)
		if !ok {
			return fmt.Errorf("%s: a number is expected, not %s", at(path), kindOf(value))
		}
		f, err := number.Float64()
		if err != nil {
			return fmt.Errorf("%s: a number is expected, not %s", at(path), number)
		}
		into.SetFloat(f)
	default:
		panic("decodeStrict does not know " + into.Type().String())
	}
	return nil
}

func fillStruct(path string, value any, into reflect.Value) error {
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: an object is expected, not %s", at(path), kindOf(value))
	}
	fields := map[string]int{}
	var names []string
	for i := range into.NumField() {
		if name := into.Type().Field(i).Tag.Get("json"); name != "" {
			fields[name] = i
			names = append(names, name)
		}
	}
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	sort.Strings(keys) // the same wrong file gives the same sentence every time
	for _, key := range keys {
		i, known := fields[key]
		if !known {
			return fmt.Errorf("%s: this field is not known; known here are %s", below(path, key), strings.Join(names, ", "))
		}
		if err := fill(below(path, key), object[key], into.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func kindOf(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("the text %q", v)
	case json.Number:
		return "the number " + v.String()
	case bool:
		return fmt.Sprint(v)
	case []any:
		return "a list"
	default:
		return "an object"
	}
}
